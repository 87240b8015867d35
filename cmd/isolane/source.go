package main

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/spf13/cobra"

	"isolane.dev/isolane/enforce"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/host/snapshot"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/lanes"
	"isolane.dev/isolane/plan"
)

// source is where a command reads the machine from.
type source struct {
	root, snapshot string
	cmd            *cobra.Command
}

func (s *source) flags(cmd *cobra.Command) {
	s.cmd = cmd
	cmd.Flags().StringVar(&s.root, "root", "",
		"directory that looks like / of the machine (with --snapshot: a folder in it)")
	cmd.Flags().StringVar(&s.snapshot, "snapshot", "",
		"archive of the machine's /sys and /proc: tar, plain or gz, bz2, xz, zst")
}

// isLive says whether the machine is this one.
func (s *source) isLive() bool { return s.snapshot == "" && (s.root == "" || s.root == "/") }

func (s *source) open() (fs.FS, error) {
	switch {
	case s.snapshot != "":
		return snapshot.Open(s.snapshot, s.root)
	case s.isLive():
		return host.Live(), nil
	}
	return host.Dir(s.root)
}

// placed reads the placement in a file; without one, that of the lanes in force on this machine.
func (s *source) placed(file string) (plan.Placement, error) {
	if file != "" {
		return readFile(file, plan.Read)
	}
	l, err := s.look()
	if err != nil {
		if errors.Is(err, journal.ErrNeedsRoot) {
			return plan.Placement{}, hint(errors.New("needs root to see the lanes in force, or a placement by "+
				"--placed FILE"), sudo())
		}
		return plan.Placement{}, fail(err)
	}
	if len(l.Placement.Lanes) == 0 {
		return plan.Placement{}, usage(errors.New("no lanes are in force here: name a placement with --placed " +
			"FILE (what plan -o json prints)"))
	}
	return l.Placement, nil
}

// look reads the lanes in force on this machine: none of another one.
func (s *source) look() (*lanes.Lanes, error) {
	if !s.isLive() {
		return &lanes.Lanes{Lanes: &enforce.Lanes{}}, nil
	}
	return lanes.Look(options())
}

// inForce are the lanes in force on this machine, for what is also worth something without them: a user who
// may not see them is told, and gets none.
func (s *source) inForce() (*lanes.Lanes, error) {
	l, err := s.look()
	if errors.Is(err, journal.ErrNeedsRoot) {
		fmt.Fprintln(s.cmd.ErrOrStderr(), "needs root to see the lanes in force:", sudo())
		return &lanes.Lanes{Lanes: &enforce.Lanes{}}, nil
	}
	return l, err
}

// read reads the machine, and returns its files too. What the user named and is no machine is bad
// input.
func (s *source) read() (host.Host, fs.FS, error) {
	wrong := usage
	if s.isLive() {
		wrong = fail
	}
	root, err := s.open()
	var path *fs.PathError
	if errors.As(err, &path) {
		err = fmt.Errorf("%s: %w", path.Path, path.Err)
	}
	if err != nil {
		return host.Host{}, nil, wrong(err)
	}
	h, err := host.Read(root)
	if err != nil {
		return host.Host{}, nil, wrong(fmt.Errorf("%s%s%w", s.snapshot, s.root, err))
	}
	return h, root, nil
}
