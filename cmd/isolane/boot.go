package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"isolane.dev/isolane/enforce"
)

func bootCommand() *cobra.Command {
	var placedFile, grub string
	var out output
	var apply, undo bool
	var from source
	cmd := &cobra.Command{
		Use: "boot",
		Short: "Show the kernel command line that lanes want, beside the one in force; --apply edits GRUB's " +
			"defaults",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			w := cmd.OutOrStdout()
			if undo {
				return showGRUB(w, out, grub, nil)
			}
			p, err := from.placed(placedFile)
			if err != nil {
				return err
			}
			h, _, err := from.read()
			if err != nil {
				return err
			}
			words := enforce.BootLine(h, p)
			if apply {
				return showGRUB(w, out, grub, append([]enforce.BootWord{}, words...))
			}
			if out.json() {
				words = append([]enforce.BootWord{}, words...) // none is a list too
				return printJSON(w, bootDocument{document("Boot"), words, bootLine(words)})
			}
			printBoot(w, words)
			return nil
		},
	}
	cmd.Flags().StringVar(&placedFile, "placed", "",
		"placement with the lanes (what plan -o json prints); without it, the lanes in force")
	out.flags(cmd, "text", "json")
	cmd.Flags().BoolVar(&apply, "apply", false,
		"write the line into GRUB's defaults file, and keep the file as it was beside it")
	cmd.Flags().BoolVar(&undo, "undo", false, "put GRUB's defaults file back as it was before the first --apply")
	cmd.Flags().StringVar(&grub, "grub", "/etc/default/grub", "GRUB's defaults file")
	from.flags(cmd)
	cmd.MarkFlagsMutuallyExclusive("apply", "undo")
	return cmd
}

// bootDocument is the JSON of isolane boot.
type bootDocument struct {
	head
	Words []enforce.BootWord `json:"words"`
	Line  string             `json:"line"` // all words, as they stand on a command line
}

// grubDocument is the JSON of isolane boot --apply and --undo.
type grubDocument struct {
	head
	File    string `json:"file"`
	Before  string `json:"before"`  // where the file is kept as it was
	Changed bool   `json:"changed"` // the file was written; without, it had the words already
	Line    string `json:"line"`    // the words that the file has now beside its own; empty after --undo
}

func bootLine(words []enforce.BootWord) string {
	var line []string
	for _, b := range words {
		line = append(line, b.Word)
	}
	return strings.Join(line, " ")
}

func printBoot(w io.Writer, words []enforce.BootWord) {
	for _, b := range words {
		state := "missing"
		switch {
		case b.InForce:
			state = "in force"
		case b.Now != "":
			state = "in force is " + b.Now
		}
		fmt.Fprintf(w, "%s\n  %s: %s\n", b.Word, state, b.Reason)
	}
	fmt.Fprintf(w, "line: %s\n", bootLine(words))
}

// before is where the file is kept as it was.
func before(grub string) string { return grub + ".before-isolane" }

// showGRUB changes GRUB's defaults file, and says what came of it. Without words it is put back.
func showGRUB(w io.Writer, out output, grub string, words []enforce.BootWord) error {
	change := applyGRUB
	if words == nil {
		change = undoGRUB
	}
	changed, err := change(grub, words)
	switch {
	case err != nil:
		return fail(err)
	case out.json():
		return printJSON(w, grubDocument{document("GRUB"), grub, before(grub), changed, bootLine(words)})
	case words == nil:
		fmt.Fprintf(w, "%s is as it was before isolane\n", grub)
	case !changed:
		fmt.Fprintf(w, "%s has these words already\n", grub)
	default:
		fmt.Fprintf(w, "%s is written, as it was it is in %s\nnow run update-grub and start the machine again\n",
			grub, before(grub))
	}
	return nil
}

func applyGRUB(grub string, words []enforce.BootWord) (changed bool, err error) {
	old, err := os.ReadFile(grub)
	if err != nil {
		return false, err
	}
	text, err := enforce.EditGRUB(string(old), words)
	if err != nil {
		return false, fmt.Errorf("%s: %w", grub, err)
	}
	if text == string(old) {
		return false, nil
	}
	if _, err = os.Stat(before(grub)); errors.Is(err, fs.ErrNotExist) {
		err = replaceFile(before(grub), string(old))
	}
	if err == nil {
		err = replaceFile(grub, text)
	}
	return true, err
}

func undoGRUB(grub string, _ []enforce.BootWord) (changed bool, err error) {
	return true, os.Rename(before(grub), grub)
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
