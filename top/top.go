// Package top shows lanes in force live in a terminal, as top(1) shows processes: who takes time from their
// CPUs, what their devices carry, what drifts, and their objectives.
//
// All figures are those of package watch; what is in force is read again where it has changed. A model gets
// them as messages, and its View is text: both are tested without a terminal.
package top

import (
	"context"
	"errors"
	"io"
	"os"

	tea "charm.land/bubbletea/v2"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/enforce"
	"isolane.dev/isolane/lanes"
	"isolane.dev/isolane/terminal"
	"isolane.dev/isolane/watch"
)

// Run shows the lanes in force until the user quits or the context ends. Errors: those of watch.Open.
func Run(ctx context.Context, of lanes.Options, in io.Reader, out *os.File) error {
	of = of.Complete()
	first, err := open(of) // what is wrong is said before there is a screen
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// Keys are shown at once, but no more often than a slow line can take; figures come once a second.
	p := tea.NewProgram(model{colour: terminal.Of(out).Colour}, tea.WithContext(ctx), tea.WithInput(in),
		tea.WithOutput(out), tea.WithFPS(10), tea.WithoutSignalHandler())
	ended := make(chan error, 1)
	go func() {
		ended <- feed(ctx, of, first, func(n now) { p.Send(n) })
		p.Quit()
	}()
	_, err = p.Run()
	if errors.Is(err, tea.ErrProgramKilled) && ctx.Err() != nil {
		err = nil
	}
	cancel()
	return errors.Join(<-ended, err)
}

// now is what there is to show.
type now struct {
	watch.Reading
	lanes []laneNow
}

// laneNow is a lane in force, with the CPUs that nobody else may use.
type laneNow struct {
	enforce.LaneStatus
	owned cpuset.Set
}

// session is a watch of what was in force when it began.
type session struct {
	*watch.Watch
	state string // of what is in force, as it is written
}

func open(of lanes.Options) (s session, err error) {
	if s.state, err = enforce.State(of.Dir); err != nil {
		return s, err
	}
	s.Watch, err = watch.Open(of, watch.Options{})
	return s, err
}

var errChanged = errors.New("other lanes are in force")

// feed shows readings until the context ends, and begins anew where other lanes are in force.
func feed(ctx context.Context, of lanes.Options, s session, show func(now)) error {
	for {
		err := s.watch(ctx, of, show)
		found := &watch.FoundError{}
		switch {
		case errors.Is(err, errChanged):
		case ctx.Err() != nil, errors.As(err, &found): // drift that is left is no error here
			return nil
		default:
			return err
		}
		if s, err = open(of); err != nil {
			return err
		}
	}
}

// often is after how many readings what is in force is read again where it is the same: a proof may be new.
const often = 10

func (s session) watch(ctx context.Context, of lanes.Options, show func(now)) (err error) {
	defer func() { err = errors.Join(err, s.Close()) }()
	var n now
	readings := 0
	return s.Run(ctx, func(r watch.Reading) error {
		state, err := enforce.State(of.Dir)
		if err == nil && state != s.state {
			err = errChanged
		}
		if err == nil && readings%often == 0 {
			n.lanes, err = inForce(ctx, of)
		}
		readings++
		if err != nil || r.Final {
			return err
		}
		n.Reading = r
		show(n)
		return nil
	})
}

func inForce(ctx context.Context, of lanes.Options) ([]laneNow, error) {
	l, err := lanes.Look(of)
	if err != nil {
		return nil, err
	}
	s, err := l.Status(ctx)
	if err != nil {
		return nil, err
	}
	var all []laneNow
	for _, status := range s.Lanes {
		placed, err := l.Lane(status.Name)
		if err != nil {
			return nil, err
		}
		all = append(all, laneNow{status, placed.Owned()})
	}
	return all, nil
}
