package export

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"isolane.dev/isolane/report"
	"isolane.dev/isolane/results"
)

// Exports are what --export asks for: each a format with a file or standard output. They are a flag's value.
type Exports []exported

type exported struct {
	Format
	file string // "": standard output
}

// Set adds an export.
func (e *Exports) Set(value string) error {
	name, file, named := strings.Cut(value, "=")
	f, err := Find(name)
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

// String returns "": by default nothing is exported.
func (*Exports) String() string { return "" }

// Type returns what the flag's help calls its value.
func (*Exports) Type() string { return "format" }

// About lists the formats, one per line.
func About() string {
	text := ""
	for _, f := range Formats() {
		text += fmt.Sprintf("    %-12s %s\n", f.Name, f.About)
	}
	return strings.TrimSuffix(text, "\n")
}

// Printed reports whether an export goes to standard output.
func (e Exports) Printed() bool {
	return slices.ContainsFunc(e, func(one exported) bool { return one.file == "" })
}

// RefuseOverwrite returns an error if an export would overwrite the results in dir.
func (e Exports) RefuseOverwrite(dir string) error {
	for _, name := range []string{results.File, results.Packed} {
		kept, err := os.Stat(filepath.Join(dir, name))
		for _, one := range e {
			if at, wrong := os.Stat(one.file); err == nil && wrong == nil && os.SameFile(at, kept) {
				return fmt.Errorf("--export %s=%s: these are the results themselves: name another file", one.Name,
					one.file)
			}
		}
	}
	return nil
}

// Write writes all exports, or none if one cannot be made.
func (e Exports) Write(stdout io.Writer, d report.Document) error {
	made := make([]bytes.Buffer, len(e))
	for i, one := range e {
		if err := one.Write(&made[i], d); err != nil {
			return fmt.Errorf("--export %s: %w", one.Name, err)
		}
	}
	for i, one := range e {
		if one.file == "" {
			if _, err := stdout.Write(made[i].Bytes()); err != nil {
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

// store replaces a file as a whole. It writes into what is no regular file, such as a pipe.
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
