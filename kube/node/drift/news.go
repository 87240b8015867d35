package drift

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// news is what is to be told, by lane. The first change is told at once. While changes go on, the next text
// waits twice as long each time, and has what came meanwhile.
type news map[string]*topic

type topic struct {
	texts []string // the first few different ones that are not told yet
	more  int      // further ones
	next  time.Time
	wait  time.Duration
}

const (
	mostTexts = 3
	firstWait = time.Minute
	lastWait  = 16 * time.Minute
)

// add adds a text that is to be told of a lane.
func (n news) add(lane, text string) {
	t := n[lane]
	if t == nil {
		t = &topic{wait: firstWait}
		n[lane] = t
	}
	switch {
	case slices.Contains(t.texts, text):
	case len(t.texts) < mostTexts:
		t.texts = append(t.texts, text)
	default:
		t.more++
	}
}

// due returns what is to be told now, and forgets it.
func (n news) due(now time.Time) map[string]string {
	all := map[string]string{}
	for lane, t := range n {
		if now.Before(t.next) {
			continue
		}
		if len(t.texts) == 0 { // calm since
			delete(n, lane)
			continue
		}
		all[lane] = strings.Join(t.texts, "; ")
		if t.more > 0 {
			all[lane] += fmt.Sprintf("; and %d more", t.more)
		}
		t.texts, t.more = nil, 0
		t.next, t.wait = now.Add(t.wait), min(2*t.wait, lastWait)
	}
	return all
}
