package prove

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"slices"

	"isolane.dev/isolane/probe"
	"isolane.dev/isolane/prove/scenario"
	"isolane.dev/isolane/results"
)

// demanding is a probe that needs more of the host than programs.
type demanding interface {
	// Missing says what the host lacks, and what to do about it. what is "" if nothing is missing.
	Missing(ctx context.Context, root fs.FS) (what, remedy string)
}

// installed fails with a *MissingError for the first program that this host lacks.
func installed(programs []scenario.Program) error {
	for _, program := range programs {
		if _, err := exec.LookPath(program.Name); err != nil {
			return &MissingError{fmt.Sprintf("%s is not installed", program.Name),
				"apt-get install " + program.Package}
		}
	}
	return nil
}

// lacks fails with a *MissingError if a probe cannot run on this host.
func lacks(ctx context.Context, p scenario.Probe, kinds []probe.Driver, root fs.FS) error {
	if err := installed(p.Programs(kinds)); err != nil {
		return err
	}
	if d, ok := p.Probe.(demanding); ok {
		if what, remedy := d.Missing(ctx, root); what != "" {
			return &MissingError{what, remedy}
		}
	}
	return nil
}

// leaveOut decides from which cells of this boot optional probes are left out. It does so once, before the
// first run of these cells, so that all their blocks have the same probes. Cells of another boot are decided
// there.
func (r *runner) leaveOut(ctx context.Context, o Options, s *results.Session) error {
	r.LeftOut = s.LeftOut
	var cells []results.Cell
	for _, c := range s.Cells {
		if _, here := r.Layouts[c.Name]; here {
			cells = append(cells, c)
		}
	}
	begun := slices.ContainsFunc(s.Runs, func(run results.Run) bool {
		return slices.ContainsFunc(cells, func(c results.Cell) bool { return c.Name == run.Cell })
	})
	for _, p := range r.Scenario.Spec.Probes {
		if !p.Optional {
			continue
		}
		missing := lacks(ctx, p, r.Kinds.Probes, o.Root)
		if begun {
			goesOn := func(c results.Cell) bool { return len(r.NotLeftOut(c.Name, []scenario.Probe{p})) > 0 }
			if missing != nil && slices.ContainsFunc(cells, goesOn) {
				return fmt.Errorf("%s: %s was measured in the cells that were begun, and cannot be now: %w", o.Dir,
					p.Name, missing)
			}
			continue
		}
		r.omit(p, cells, missing)
	}
	for _, out := range r.LeftOut[len(s.LeftOut):] {
		note := fmt.Sprintf("%s is left out: %s.", out.Probe, out.Because)
		if len(out.Cells) < len(cells) {
			note = fmt.Sprintf("%s is left out in %d of %d cells: %s.", out.Probe, len(out.Cells), len(cells),
				out.Because)
		}
		if !slices.Contains(s.Notes, note) { // from another boot
			s.Notes = append(s.Notes, note)
		}
	}
	s.LeftOut = r.LeftOut
	return nil
}

// omit leaves a probe out of the cells in which it cannot run: out of all if this host lacks something.
func (r *runner) omit(p scenario.Probe, cells []results.Cell, missing error) {
	before := len(r.LeftOut)
	for _, c := range cells {
		why := p.Cannot(r.Scenario.Conditions(c))
		if m, ok := errors.AsType[*MissingError](missing); ok {
			why = m.What + ": " + m.Remedy
		}
		if why == "" {
			continue
		}
		same := func(out results.LeftOut) bool { return out.Because == why }
		k := slices.IndexFunc(r.LeftOut[before:], same)
		if k < 0 {
			k = len(r.LeftOut) - before
			r.LeftOut = append(r.LeftOut, results.LeftOut{Probe: p.Name, Because: why})
		}
		out := &r.LeftOut[before+k]
		out.Cells = append(out.Cells, c.Name)
	}
}
