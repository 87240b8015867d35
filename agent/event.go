package agent

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"isolane.dev/isolane/enforce"
	"isolane.dev/isolane/plan"
	"isolane.dev/isolane/results"
)

// The kinds of events.
const (
	Started   = "started"   // the agent
	Stopped   = "stopped"   // the agent; lanes stay
	Applied   = "applied"   // a lane was put in force
	Moved     = "moved"     // a lane has other CPUs
	Released  = "released"  // a lane is no longer in force
	Drifted   = "drifted"   // a setting is not as the lanes want it
	Repaired  = "repaired"  // a setting was not, and was repaired
	Settled   = "settled"   // all settings are as the lanes want them again
	Intrusion = "intrusion" // the longest intrusion so far on a lane's CPU
	Packets   = "packets"   // packets of a lane begin to be dropped or refused
	Judged    = "judged"    // a verdict on a lane has changed
	Failed    = "failed"    // a reading failed; the text says why
	Warned    = "warned"    // about what readings cannot see
)

// Event is something that happened to the lanes, or to the agent.
type Event struct {
	APIVersion string               `json:"apiVersion"`
	Kind       string               `json:"kind"` // Event
	At         time.Time            `json:"at"`
	What       string               `json:"what"`
	Lane       string               `json:"lane,omitempty"`
	Text       string               `json:"text,omitempty"` // for people
	By         string               `json:"by,omitempty"`   // who did it, if known
	CPU        *int                 `json:"cpu,omitempty"`  // of an intrusion
	Took       *results.Nanoseconds `json:"tookNanoseconds,omitempty"`
}

// ofDrift returns the event of a drift: whether the setting drifted or was repaired.
func ofDrift(d enforce.Drift) Event {
	e := Event{What: Drifted, Text: d.Text(), By: d.By}
	if d.Repaired {
		e.What = Repaired
	}
	if d.Note != "" {
		e.Text += ": " + d.Note
	}
	return e
}

// level returns the log level of an event.
func (e Event) level() slog.Level {
	switch e.What {
	case Failed:
		return slog.LevelError
	case Drifted, Repaired, Packets, Warned:
		return slog.LevelWarn
	}
	return slog.LevelInfo
}

// tell logs an event, and sends it to the readers of events.
func (a *Agent) tell(ctx context.Context, e Event) {
	e.APIVersion, e.Kind = plan.APIVersion, "Event"
	if e.At.IsZero() {
		e.At = time.Now().UTC()
	}
	attrs := []slog.Attr{slog.String("what", e.What)}
	for _, text := range []struct{ key, value string }{{"lane", e.Lane}, {"text", e.Text}, {"by", e.By}} {
		if text.value != "" {
			attrs = append(attrs, slog.String(text.key, text.value))
		}
	}
	if e.Took != nil {
		attrs = append(attrs, slog.Duration("took", time.Duration(*e.Took)))
	}
	a.o.Log.LogAttrs(ctx, e.level(), "event", attrs...)
	a.history.keep(e)
	a.streams.send(e)
}

// streams are the readers of events.
type streams struct {
	mu  sync.Mutex
	all map[chan Event]bool
}

// backlog is how many events a reader may lag behind.
const backlog = 64

func (s *streams) add() chan Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[chan Event]bool{}
	}
	c := make(chan Event, backlog)
	s.all[c] = true
	return c
}

func (s *streams) remove(c chan Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, c)
}

// send never blocks: it ends the stream of a reader that is too slow.
func (s *streams) send(e Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.all {
		select {
		case c <- e:
		default:
			close(c)
			delete(s.all, c)
		}
	}
}
