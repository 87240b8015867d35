package main

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/spf13/cobra"

	"isolane.dev/isolane/cli"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/host/snapshot"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/lanes"
	"isolane.dev/isolane/plan"
)

// fileFlag is -f, for files with lanes: a file, a directory of them, or - for standard input.
func fileFlag(cmd *cobra.Command, names *[]string) {
	cmd.Flags().StringArrayVarP(names, "file", "f", nil,
		"file with lanes (YAML), directory of such files, or - for standard input; may be given several times")
	cli.Must(cmd.MarkFlagFilename("file", "yaml", "yml", "json"))
}

// source is where a command reads the machine from, and the lanes on it.
type source struct {
	snapshot.Source
	file string // with a placement; "": the lanes in force
	cmd  *cobra.Command
}

// flags defines the flags; placed is what --placed is for, "" for a command that takes none.
func (s *source) flags(cmd *cobra.Command, placed string) {
	s.cmd = cmd
	cmd.Flags().StringVar(&s.Root, "root", "",
		"directory that looks like / of the machine (with --snapshot: a folder in it)")
	cmd.Flags().StringVar(&s.Archive, "snapshot", "",
		"archive of the machine's /sys and /proc: tar, plain or gz, bz2, xz, zst")
	if placed != "" {
		cmd.Flags().StringVar(&s.file, "placed", "", placed)
	}
}

// placed reads the placement in the file; without one, that of the lanes in force on this machine.
func (s *source) placed() (p plan.Placement, err error) {
	if s.file != "" {
		p, err = plan.ReadFile(s.file)
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

// readFor is read for a placement: that in a file must be of this machine, and the lanes in force are.
func (s *source) readFor(p plan.Placement) (host.Host, fs.FS, error) {
	h, root, err := s.read()
	if err != nil || s.file == "" {
		return h, root, err
	}
	if err = p.Check(h.Allowing(host.Allowance{CPUs: h.Possible()})); err != nil { // a lane's are nobody else's
		err = fmt.Errorf("%s: %w", s.file, err)
	}
	return h, root, err
}

// plan places lanes beside those of a file, or those in force. The agent does it for a user who may not see
// these.
func (s *source) plan(want []lane.Lane, repack bool) (p plan.Placement, h host.Host, err error) {
	if s.file == "" && !repack && s.IsLive() && s.cmd.Flag("output").Value.String() != "svg" {
		if _, lacks := lanes.Look(options()); unable(lacks) {
			p, err = agentOf(s.cmd, lacks).Plan(s.cmd.Context(), want)
			if !errors.Is(err, lacks) { // else the plan without them is worth something
				return p, h, err
			}
		}
	}
	l, here := lanes.None(options()), false // none where the placement is that of a file
	if s.file != "" {
		p, err = s.placed()
	} else {
		l, here, err = s.inForce()
	}
	if err == nil {
		h, _, err = s.read()
	}
	switch {
	case err != nil:
	case here && !repack: // on the machine as it was before the lanes in force
		p, h, err = l.Want(want, false)
	case repack && len(l.Placement.Lanes) > 0:
		err = cli.Usage(errors.New("--repack: name the placement with --placed FILE"))
	default:
		p, err = lanes.PlanFor(options(), h, p, want, repack)
	}
	if s.file != "" && is[*plan.Mismatch](err) {
		err = fmt.Errorf("%s: %w", s.file, err)
	}
	return p, h, err
}
