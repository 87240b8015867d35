package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"syscall"

	"github.com/spf13/cobra"

	"isolane.dev/isolane/cli"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/host/snapshot"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/lanes"
	"isolane.dev/isolane/plan"
	"isolane.dev/isolane/terminal"
)

// laneFiles are the files with lanes that -f names: a file, a directory of them, or - for standard input.
type laneFiles struct{ names []string }

func (f *laneFiles) flags(cmd *cobra.Command) {
	cmd.Flags().StringArrayVarP(&f.names, "file", "f", nil,
		"file with lanes (YAML), directory of such files, or - for standard input; may be given several times")
	cli.Must(cmd.MarkFlagFilename("file", "yaml", "yml", "json"))
}

// read reads the lanes; without -f there are none.
func (f *laneFiles) read(cmd *cobra.Command) ([]lane.Lane, error) {
	if len(f.names) == 0 {
		return nil, nil
	}
	return lane.ReadAll(f.names, cmd.InOrStdin())
}

// source is where a command reads the machine from.
type source struct {
	snapshot.Source
	cmd *cobra.Command
}

func (s *source) flags(cmd *cobra.Command) {
	s.cmd = cmd
	cmd.Flags().StringVar(&s.Root, "root", "",
		"directory that looks like / of the machine (with --snapshot: a folder in it)")
	cmd.Flags().StringVar(&s.Archive, "snapshot", "",
		"archive of the machine's /sys and /proc: tar, plain or gz, bz2, xz, zst")
}

// placed reads the placement in a file; without one, that of the lanes in force on this machine.
func (s *source) placed(file string) (p plan.Placement, err error) {
	if file != "" {
		p, err = plan.ReadFile(file)
		return p, cli.Usage(err)
	}
	if s.IsLive() {
		l, lerr := look(s.cmd)
		if errors.Is(lerr, journal.ErrNeedsRoot) {
			return p, cli.Hint(
				errors.New("needs root to see the lanes in force, or a placement by --placed FILE"), sudo())
		}
		if lerr != nil {
			return p, lerr
		}
		p = l.Placement
	}
	if len(p.Lanes) == 0 {
		err = cli.Usage(
			errors.New("no lanes are in force here: name a placement (plan -o json) with --placed FILE"))
	}
	return p, err
}

// look reads the lanes in force, with a note on those without a record.
func look(cmd *cobra.Command) (*lanes.Lanes, error) {
	l, err := lanes.Look(options())
	if err == nil && l.Recorded() != nil {
		fmt.Fprintln(cmd.ErrOrStderr(), "note:", l.Recorded())
	}
	return l, err
}

// inForce are the lanes in force on this machine, none of another one, for what is also worth something
// without them: who may not see them gets none, and a note. seen says that they were looked at.
func (s *source) inForce() (l *lanes.Lanes, seen bool, err error) {
	none := lanes.None(options())
	if !s.IsLive() {
		return none, false, nil
	}
	l, err = look(s.cmd)
	if errors.Is(err, journal.ErrNeedsRoot) {
		fmt.Fprintln(s.cmd.ErrOrStderr(), "needs root to see the lanes in force:", sudo())
		return none, false, nil
	}
	return l, err == nil, err
}

// read reads the machine, and returns its files too. What the user named and is no machine is bad input.
func (s *source) read() (host.Host, fs.FS, error) {
	h, root, err := s.Read()
	if err != nil && !s.IsLive() {
		err = cli.Usage(err)
	}
	return h, root, err
}

// readFor is read for the placement in a file, which must be of that machine; those in force are.
func (s *source) readFor(p plan.Placement, file string) (host.Host, fs.FS, error) {
	h, root, err := s.read()
	if err != nil || file == "" {
		return h, root, err
	}
	if err = p.Check(h.Allowing(host.Allowance{CPUs: h.Possible()})); err != nil { // a lane's are nobody else's
		err = fmt.Errorf("%s: %w", file, err)
	}
	return h, root, err
}

// incomplete says that what was printed is not complete, and what else the command failed in. Who has
// closed a pipe knows it, and is told nothing.
func incomplete(stderr io.Writer, lost *terminal.OutputError, err error) int {
	if err != nil && !errors.Is(err, lost.Err) && !errors.Is(err, context.Canceled) {
		cli.Print(stderr, "isolane", err)
	}
	if !errors.Is(lost, syscall.EPIPE) {
		fmt.Fprintf(stderr, "isolane: %v\n", lost)
	}
	return cli.ExitFailed
}
