// Package top shows the lanes in force live in a terminal, as top(1) shows processes: who takes time from
// their CPUs, what their devices carry, what drifts, and their objectives.
//
// All figures come from package watch. What is in force is read again when it has changed. The model receives
// both as messages, and its View is text, so both are tested without a terminal.
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

// TerminalError says that there is no terminal to show lanes on.
type TerminalError struct{}

func (*TerminalError) Error() string { return "top needs a terminal" }

// Hint names what needs none.
func (*TerminalError) Hint() string {
	return "isolane watch prints the same, a line a second; watch -o json: a document a second"
}

// Run shows the lanes in force until the user quits or the context ends. Errors: *TerminalError,
// *process.CapabilityError, and those of watch.Open.
func Run(ctx context.Context, of lanes.Options, in *os.File, out io.Writer) error {
	if terminal.Height(out) == 0 || terminal.Height(in) == 0 {
		return &TerminalError{}
	}
	if err := watch.Need("top"); err != nil {
		return err
	}
	w, err := watch.Open(of, watch.Options{Follow: true}) // errors are printed before there is a screen
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// Keys show at once, but not more often than a slow line can take. Figures come once a second.
	p := tea.NewProgram(model{colour: terminal.Of(out).Colour}, tea.WithContext(ctx), tea.WithInput(in),
		tea.WithOutput(out), tea.WithFPS(10), tea.WithoutSignalHandler())
	ended := make(chan error, 1)
	go func() {
		ended <- feed(ctx, of.Complete(), w, func(n now) { p.Send(n) })
		p.Quit()
	}()
	_, err = p.Run()
	if errors.Is(err, tea.ErrProgramKilled) && ctx.Err() != nil {
		err = nil
	}
	cancel()
	return errors.Join(<-ended, err)
}

// now is what there is to show at present.
type now struct {
	watch.Reading
	lanes []laneNow
	none  string // why there are no lanes, if something is wrong
}

// laneNow is a lane in force, with the CPUs that nobody else may use.
type laneNow struct {
	enforce.LaneStatus
	owned cpuset.Set
}

// readingsPerRead is after how many readings the lanes are read again even if unchanged: there may be a new
// proof.
const readingsPerRead = 10

// feed calls show with each reading, until the context ends.
func feed(ctx context.Context, of lanes.Options, w *watch.Watch, show func(now)) error {
	var n now
	state, readings := "", 0
	err := w.Run(ctx, func(r watch.Reading) error {
		other, serr := enforce.State(of.Dir)
		if serr == nil && (other != state || readings%readingsPerRead == 0) {
			n.lanes, n.none, serr = inForce(ctx, of)
		}
		if serr != nil || r.Final {
			return serr
		}
		state, n.Reading = other, r
		readings++
		show(n)
		return nil
	})
	if _, found := errors.AsType[*watch.FoundError](err); found || ctx.Err() != nil {
		err = nil // what drifts is still shown
	}
	return errors.Join(err, w.Close())
}

func inForce(ctx context.Context, of lanes.Options) (all []laneNow, none string, err error) {
	l, err := lanes.Look(of)
	if err != nil {
		return nil, "", err
	}
	s, err := l.Status(ctx)
	if err != nil {
		return nil, "", err
	}
	for _, status := range s.Lanes {
		placed, err := l.Lane(status.Name)
		if err != nil {
			return nil, "", err
		}
		all = append(all, laneNow{status, placed.Owned()})
	}
	if lost := l.Recorded(); lost != nil {
		none = lost.Error()
	}
	return all, none, nil
}
