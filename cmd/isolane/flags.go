package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

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
	must(cmd.MarkFlagFilename("file", "yaml", "yml", "json"))
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
		return p, usage(err)
	}
	if s.IsLive() {
		l, lerr := look(s.cmd)
		if errors.Is(lerr, journal.ErrNeedsRoot) {
			return p, hint(errors.New("needs root to see the lanes in force, or a placement by --placed FILE"), sudo())
		}
		if lerr != nil {
			return p, lerr
		}
		p = l.Placement
	}
	if len(p.Lanes) == 0 {
		err = usage(errors.New("no lanes are in force here: name a placement (plan -o json) with --placed FILE"))
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
		err = usage(err)
	}
	return h, root, err
}

// output is a command's -o. What the command cannot print is refused before it begins.
type output struct {
	format  string
	formats []string
}

// flags defines -o with the formats of the command; the first one is the default.
func (o *output) flags(cmd *cobra.Command, formats ...string) {
	o.format, o.formats = formats[0], formats
	cmd.Flags().VarP(o, "output", "o", o.expected())
	complete := cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp)
	must(cmd.RegisterFlagCompletionFunc("output", complete))
}

func (o *output) expected() string {
	last := len(o.formats) - 1
	return strings.Join(o.formats[:last], ", ") + " or " + o.formats[last]
}

// Set takes the flag's value.
func (o *output) Set(format string) error {
	if !slices.Contains(o.formats, format) {
		return fmt.Errorf("expected %s", o.expected())
	}
	o.format = format
	return nil
}

// String is the flag's value.
func (o *output) String() string { return o.format }

// Type is what the flag's help calls its value.
func (o *output) Type() string { return "format" }

// json says whether the command prints one JSON document.
func (o *output) json() bool { return o.format == "json" }

// document is what a command prints as JSON, or as it writes itself for people.
type document interface{ Write(w io.Writer) }

// print prints a document as the user wants it, if there is one.
func (o *output) print(cmd *cobra.Command, d document, err error) error {
	if err != nil {
		return err
	}
	return o.printAs(cmd, d, d.Write)
}

// printAs is print for a document that is written in several ways.
func (o *output) printAs(cmd *cobra.Command, d any, write func(io.Writer)) error {
	if o.json() {
		return printJSON(cmd.OutOrStdout(), d)
	}
	write(cmd.OutOrStdout())
	return nil
}

func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// incomplete says that what was printed is not complete, and what else the command failed in. Who has
// closed a pipe knows it, and is told nothing.
func incomplete(stderr io.Writer, lost *terminal.OutputError, err error) int {
	if err != nil && !errors.Is(err, lost.Err) && !errors.Is(err, context.Canceled) {
		printError(stderr, err)
	}
	if !errors.Is(lost, syscall.EPIPE) {
		fmt.Fprintf(stderr, "isolane: %v\n", lost)
	}
	return exitFailed
}
