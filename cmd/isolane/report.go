package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"isolane.dev/isolane/report"
	"isolane.dev/isolane/report/compare"
	"isolane.dev/isolane/report/export"
	"isolane.dev/isolane/results"
)

func reportCommand() *cobra.Command {
	var out output
	var to exports
	cmd := &cobra.Command{
		Use:   "report DIR",
		Short: "Write the table and the page again from stored results, and export them",
		Long: "Writes the page and the charts of a session beside its results, and prints the table. With\n" +
			"--export the session is written in the format of another program, to a file or, instead of the\n" +
			"table, to standard output:\n\n" + to.describe(),
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if to.printed() && cmd.Flags().Changed("output") {
				return usage(errors.New("--export and -o both print: name a file, --export FORMAT=FILE"))
			}
			s, err := results.Read(args[0])
			if err == nil {
				err = to.spare(filepath.Join(args[0], results.File))
			}
			if err != nil {
				return usage(err)
			}
			d, err := report.Store(args[0], s)
			if err == nil {
				err = to.write(cmd, d)
			}
			if err != nil || to.printed() {
				return err
			}
			return out.print(cmd, d, nil)
		},
	}
	out.flags(cmd, "text", "json")
	cmd.Flags().Var(&to, "export", "write another format too, `FORMAT[=FILE]`; may be given several times")
	return cmd
}

// exports are what --export asks for.
type exports []exported

type exported struct {
	export.Format
	file string // "": standard output
}

// Set takes one more.
func (e *exports) Set(value string) error {
	name, file, named := strings.Cut(value, "=")
	f, err := export.Find(name)
	switch {
	case err != nil:
		return err
	case named && file == "":
		return errors.New("expected a file behind =")
	}
	for _, other := range *e {
		switch {
		case file == "" && other.file == "":
			return errors.New("standard output takes one: name a file, FORMAT=FILE")
		case file != "" && filepath.Clean(file) == filepath.Clean(other.file):
			return fmt.Errorf("%s is named twice", file)
		}
	}
	*e = append(*e, exported{f, file})
	return nil
}

// String is nothing: by default nothing is exported.
func (*exports) String() string { return "" }

// Type is what the flag's help calls its value.
func (*exports) Type() string { return "format" }

func (*exports) describe() string {
	text := ""
	for _, f := range export.Formats() {
		text += fmt.Sprintf("    %-12s %s\n", f.Name, f.About)
	}
	return strings.TrimSuffix(text, "\n")
}

// printed says whether one goes to standard output.
func (e exports) printed() bool {
	for _, one := range e {
		if one.file == "" {
			return true
		}
	}
	return false
}

// spare refuses to overwrite a file.
func (e exports) spare(name string) error {
	kept, err := os.Stat(name)
	if err != nil {
		return err
	}
	for _, one := range e {
		if at, err := os.Stat(one.file); err == nil && os.SameFile(at, kept) {
			return fmt.Errorf("--export %s=%s: these are the results themselves: name another file", one.Name,
				one.file)
		}
	}
	return nil
}

// write writes all, and none where one cannot be made.
func (e exports) write(cmd *cobra.Command, d report.Document) error {
	made := make([]bytes.Buffer, len(e))
	for i, one := range e {
		if err := one.Write(&made[i], d); err != nil {
			return fmt.Errorf("--export %s: %w", one.Name, err)
		}
	}
	for i, one := range e {
		if one.file == "" {
			if _, err := cmd.OutOrStdout().Write(made[i].Bytes()); err != nil {
				return err
			}
			continue
		}
		if err := store(one.file, made[i].Bytes()); err != nil {
			return fmt.Errorf("--export %s=%s: %w", one.Name, one.file, err)
		}
	}
	return nil
}

// store replaces a file as a whole; what is no regular file, such as a pipe, is written to.
func store(name string, data []byte) error {
	at, err := os.Lstat(name)
	if err == nil && !at.Mode().IsRegular() {
		err = os.WriteFile(name, data, 0o644)
	} else {
		err = results.WriteFile(name, data)
	}
	if path, is := errors.AsType[*fs.PathError](err); is {
		return path.Err // its name may be that of a temporary file
	}
	return err
}

func compareCommand() *cobra.Command {
	var out output
	var all bool
	cmd := &cobra.Command{
		Use:   "compare A B",
		Short: "Compare two sessions, and show what differs in their conditions",
		Long: "A and B are directories with results. Cells are matched by their levels, and each metric of B is\n" +
			"given in % of that of A. The sessions were measured at different times: drift between them is not\n" +
			"excluded, other than within a session.",
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			var sides [2]compare.Side
			for i, name := range args {
				dir := name
				if filepath.Base(name) == results.File {
					dir = filepath.Dir(name)
				}
				s, err := results.Read(dir)
				if err != nil {
					return usage(err)
				}
				sides[i] = compare.Side{Name: name, Session: s}
			}
			d, err := compare.Sessions(sides[0], sides[1], all)
			if err != nil {
				return usage(err)
			}
			return out.print(cmd, d, nil)
		},
	}
	out.flags(cmd, "text", "json")
	cmd.Flags().BoolVar(&all, "all", false, "compare all metrics, not the primary ones only")
	return cmd
}
