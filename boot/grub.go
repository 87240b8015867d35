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

// GRUB is what editing GRUB's defaults file gave: the JSON of `isolane boot --apply` and `--undo`.
type GRUB struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"` // GRUB
	File       string `json:"file"`
	Before     string `json:"before"`  // the copy of the file as it was before
	Changed    bool   `json:"changed"` // the file was written; otherwise it already had the words
	Line       string `json:"line"`    // words that the file now has beside its own; empty after --undo

	undone bool
	more   bool // the file has other changes since then, by somebody else
	bls    bool // boot loader entries have their own copies of the line (Fedora, Red Hat)
}

func grubFile(name string) GRUB {
	return GRUB{APIVersion: plan.APIVersion, Kind: "GRUB", File: name, Before: name + ".before-isolane"}
}

// ApplyGRUB writes a line into GRUB's defaults file. It keeps a copy of the original file beside it.
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
	if err = checkDropIns(name, l.Words); err != nil {
		return g, err
	}
	g.bls = strings.Contains(text, "GRUB_ENABLE_BLSCFG=true")
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

// UndoGRUB restores the parameters that ApplyGRUB has set to what they were before its first run. What others
// have changed in the file since stays.
func UndoGRUB(name string) (GRUB, error) {
	g := grubFile(name)
	g.Changed, g.undone = true, true
	before, err := os.ReadFile(g.Before)
	if err != nil {
		return g, err
	}
	now, err := os.ReadFile(name)
	if err != nil {
		return g, err
	}
	text, err := undoGRUB(string(now), string(before))
	if err != nil {
		return g, fmt.Errorf("%s: %w", name, err)
	}
	g.more = text != string(before)
	g.bls = strings.Contains(text, "GRUB_ENABLE_BLSCFG=true")
	if err = replaceFile(name, text); err != nil {
		return g, err
	}
	return g, os.Remove(g.Before)
}

// Write prints for people what was done, and what to do next.
func (g GRUB) Write(w io.Writer) {
	update := "update-grub (where there is none: grub-mkconfig -o /boot/grub/grub.cfg)"
	if g.bls {
		update = "grub2-mkconfig -o /boot/grub2/grub.cfg --update-bls-cmdline (without that option: grubby " +
			"--update-kernel=ALL --args=… or --remove-args=…)"
	}
	switch {
	case g.undone && g.more:
		fmt.Fprintf(w, "%s has no words of isolane any more; what else was changed since then stays\n", g.File)
	case g.undone:
		fmt.Fprintf(w, "%s is as it was before isolane\n", g.File)
	case !g.Changed:
		fmt.Fprintf(w, "%s has these words already\n", g.File)
		return
	default:
		fmt.Fprintf(w, "%s is written, as it was it is in %s\n", g.File, g.Before)
	}
	fmt.Fprintf(w, "now run %s and start the machine again\n", update)
}

// replaceFile replaces a file as a whole, or leaves it as it was.
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
