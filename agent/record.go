package agent

import (
	"fmt"
	"log/slog"
	"strings"
	"time"

	"isolane.dev/isolane/history"
)

// recorder writes the agent's events into the history in the background, so that a slow disk delays no
// reading. A nil recorder writes nothing.
type recorder struct {
	log        *slog.Logger
	events     chan history.Event
	stop, done chan struct{}
}

func newRecorder(dir string, log *slog.Logger) *recorder {
	r := &recorder{log, make(chan history.Event, 1000), make(chan struct{}), make(chan struct{})}
	go func() {
		defer close(r.done)
		for {
			select {
			case e := <-r.events:
				if err := history.Append(dir, e); err != nil {
					log.Warn("history", "error", strings.ReplaceAll(err.Error(), "\n", "; "))
				}
			case <-r.stop:
				if len(r.events) == 0 {
					return
				}
			}
		}
	}()
	return r
}

// keep queues an event for writing.
func (r *recorder) keep(e Event) {
	h, is := recorded(e)
	if r == nil || !is {
		return
	}
	select {
	case r.events <- h:
	default:
		r.log.Warn("history: the disk is too slow for what happens", "lost", e.What)
	}
}

// close waits until everything is written. The channel of events stays open, because a request may outlast
// the agent's end and still be recorded.
func (r *recorder) close() {
	if r != nil {
		close(r.stop)
		<-r.done
	}
}

// recorded converts an event for the history, and reports whether it belongs there: commands record what they
// do themselves.
func recorded(e Event) (history.Event, bool) {
	h := history.Event{At: e.At, Lane: e.Lane, What: e.Text, By: e.By, CPU: e.CPU}
	kind, is := map[string]history.Kind{Started: history.AgentStarted, Stopped: history.AgentEnded,
		Drifted: history.Drifted, Repaired: history.PutBack, Intrusion: history.Intrusion,
		Packets: history.Packets, Judged: history.Proof}[e.What]
	asked := map[string]history.Kind{Applied: history.Applied, Moved: history.Applied,
		Released: history.Released}[e.What]
	if asked != "" && e.By != "" { // it was a request
		kind, is = asked, true
	}
	if h.Kind = kind; kind == history.PutBack {
		h.Settings = 1
	}
	if e.Took != nil {
		h.Took = int64(*e.Took)
		h.What = fmt.Sprintf("%s, for %s", h.What, time.Duration(h.Took))
	}
	return h, is
}
