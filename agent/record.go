package agent

import (
	"fmt"
	"log/slog"
	"strings"
	"time"

	"isolane.dev/isolane/history"
)

// recorder writes into the history what the agent tells, behind it: a slow disk keeps no reading waiting. One
// that is nil writes nothing.
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

// keep takes an event to be written.
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

// close waits until all is written. The channel of events stays open: a request that outlasts the agent's end
// may still be recorded.
func (r *recorder) close() {
	if r != nil {
		close(r.stop)
		<-r.done
	}
}

// recorded is an event for the history, where it is one: commands record what they do themselves.
func recorded(e Event) (history.Event, bool) {
	h := history.Event{At: e.At, Lane: e.Lane, What: e.Text, By: e.By, CPU: e.CPU}
	kind, is := map[string]history.Kind{Started: history.AgentStarted, Stopped: history.AgentEnded,
		Drifted: history.Drifted, Repaired: history.PutBack, Intrusion: history.Intrusion,
		Packets: history.Packets, Judged: history.Proof}[e.What]
	asked := map[string]history.Kind{Applied: history.Applied, Moved: history.Applied,
		Released: history.Released}[e.What]
	if asked != "" && e.By != "" { // by a request
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
