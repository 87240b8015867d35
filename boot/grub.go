package boot

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"isolane.dev/isolane/plan"
)

// GRUB is what came of editing GRUB's defaults file: what `isolane boot --apply` and `--undo` print as JSON.
type GRUB struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"` // GRUB
	File       string `json:"file"`
	Before     string `json:"before"`  // where the file is kept as it was
	Changed    bool   `json:"changed"` // the file was written; without, it had the words already
	Line       string `json:"line"`    // the words that the file has now beside its own; empty after --undo

	undone bool
}

func grubFile(name string) GRUB {
	return GRUB{APIVersion: plan.APIVersion, Kind: "GRUB", File: name, Before: name + ".before-isolane"}
}

// ApplyGRUB puts a line into GRUB's defaults file, and keeps the file as it was beside it.
func ApplyGRUB(name string, l Line) (GRUB, error) {
	g := grubFile(name)
	g.Line = l.Line
	old, err := os.ReadFile(name)
	if err != nil {
		return g, err
	}
	text, err := editGRUB(string(old), l.Words)
	if err != nil {
		return g, fmt.Errorf("%s: %w", name, err)
	}
	if g.Changed = text != string(old); !g.Changed {
		return g, nil
	}
	if _, err = os.Stat(g.Before); errors.Is(err, fs.ErrNotExist) {
		err = replaceFile(g.Before, string(old))
	}
	if err == nil {
		err = replaceFile(name, text)
	}
	return g, err
}

// UndoGRUB puts GRUB's defaults file back as it was before the first ApplyGRUB.
func UndoGRUB(name string) (GRUB, error) {
	g := grubFile(name)
	g.Changed, g.undone = true, true
	return g, os.Rename(g.Before, name)
}

// Write writes for people what was done, and what to do next.
func (g GRUB) Write(w io.Writer) {
	switch {
	case g.undone:
		fmt.Fprintf(w, "%s is as it was before isolane\n", g.File)
	case !g.Changed:
		fmt.Fprintf(w, "%s has these words already\n", g.File)
	default:
		fmt.Fprintf(w, "%s is written, as it was it is in %s\nnow run update-grub and start the machine again\n",
			g.File, g.Before)
	}
}

// replaceFile writes a file that is there complete or not at all.
func replaceFile(name, text string) error {
	f, err := os.CreateTemp(filepath.Dir(name), ".isolane-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.WriteString(text)
	err = errors.Join(err, f.Chmod(0o644), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	return err
}

// editGRUB puts words into GRUB_CMDLINE_LINUX of GRUB's defaults file, in the place of parameters of the
// same names, and of hugepages of the same sizes; the rest of the file stays as it is. Editing twice is
// editing once.
func editGRUB(text string, words []Word) (string, error) {
	const key = "GRUB_CMDLINE_LINUX="
	names, sizes := map[string]bool{}, map[uint64]bool{}
	var add []string
	for _, w := range words {
		fields := strings.Fields(w.Word)
		for i, size := range pageSizes(fields) {
			name, _, _ := strings.Cut(fields[i], "=")
			names[name], sizes[size] = size == 0, true
		}
		add = append(add, fields...)
	}
	delete(sizes, 0)
	lines := strings.SplitAfter(text, "\n")
	at := -1
	for i, line := range lines {
		if strings.HasPrefix(line, key) {
			if at >= 0 {
				return "", fmt.Errorf("line %d: a second %s: leave one", i+1, key)
			}
			at = i
		}
	}
	var keep []string
	if at >= 0 {
		value := strings.TrimSpace(strings.TrimPrefix(lines[at], key))
		quote := ""
		if n := len(value); n >= 2 && (value[0] == '"' || value[0] == '\'') && value[n-1] == value[0] {
			quote, value = value[:1], value[1:n-1]
		}
		if strings.ContainsAny(value, "$`\\\"'") || quote == "" && strings.ContainsAny(value, " #") {
			return "", fmt.Errorf("line %d: %s holds more than plain words: edit it by hand", at+1, key)
		}
		fields := strings.Fields(value)
		for i, size := range pageSizes(fields) {
			name, _, _ := strings.Cut(fields[i], "=")
			if !names[strings.ReplaceAll(name, "-", "_")] && !sizes[size] {
				keep = append(keep, fields[i])
			}
		}
	}
	line := key + "\"" + strings.Join(append(keep, add...), " ") + "\"\n"
	if at < 0 {
		if text != "" && !strings.HasSuffix(text, "\n") {
			line = "\n" + line
		}
		return text + line, nil
	}
	lines[at] = line
	return strings.Join(lines, ""), nil
}
