package testbed

import (
	"context"
	"fmt"
	"path/filepath"
	"syscall"

	"isolane.dev/isolane/knob"
	"isolane.dev/isolane/noise"
	"isolane.dev/isolane/prove/programs"
	"isolane.dev/isolane/results"
	"isolane.dev/isolane/runtime/process"
)

// neighboursGroup is a group of a run besides the lanes' own.
const neighboursGroup = "prove-neighbours"

// noiseOf returns the command line of a cell's neighbours.
func noiseOf(at place) []string {
	report := filepath.Join(at.scratch, noiseReport)
	return noise.Argv(at.given.Neighbours, at.cell.Neighbours.Len(), report, at.scratch)
}

func (r *Bed) startNeighbours(ctx context.Context, at place) (*programs.Process, error) {
	dir, err := knob.GroupDir(at.host, neighboursGroup)
	if err != nil {
		return nil, err
	}
	p, err := programs.Start(ctx, r.Self, "neighbours", process.Lane{Cgroup: dir}, nil, noiseOf(at),
		programs.Ready{})
	if err != nil {
		return nil, fmt.Errorf("neighbours: %w", err)
	}
	return p, nil
}

// stopNeighbours ends the noise and records what it delivered.
func (r *Bed) stopNeighbours(ctx context.Context, m moment, scratch string, run *results.Run) error {
	var err error
	if m.pods != nil {
		err = m.pods.neighbours.Stop(ctx, r.Root, patience)
	} else if err = m.neighbours.Stop(syscall.SIGTERM, patience); err == nil {
		_, ended := m.neighbours.Wait()
		died(run, ended)
	}
	if err != nil {
		return err
	}
	return delivered(scratch, run)
}

// died makes a run void for what neighbours said, such as an unknown option, if the witness saw that they had
// ended before they were told to.
func died(run *results.Run, err error) {
	if err != nil && run.Witness.Source != "" && !run.Witness.Neighbours.Alive {
		run.Void = append(run.Void, "neighbours: "+err.Error())
	}
}

// noiseReport is the file in which neighbours report their work.
const noiseReport = "noise.yaml"

// delivered records what ended neighbours report of their work.
func delivered(scratch string, run *results.Run) error {
	report, err := programs.ReadSome(filepath.Join(scratch, noiseReport))
	if err != nil {
		run.Notes = append(run.Notes, "the neighbours left no report of their work: "+err.Error())
		return nil
	}
	run.Witness.Neighbours.BogoPerSec, err = noise.Delivered(report)
	return err
}
