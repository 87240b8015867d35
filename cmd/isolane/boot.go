package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"isolane.dev/isolane/enforce"
)

func bootCommand() *cobra.Command {
	var placedFile, format, grub string
	var apply, undo bool
	var from source
	cmd := &cobra.Command{
		Use:   "boot",
		Short: "Show the kernel command line that lanes want, beside the one in force; --apply edits GRUB's defaults",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			w := cmd.OutOrStdout()
			switch {
			case format != "text" && format != "json":
				return usage(fmt.Errorf("-o %q: expected text or json", format))
			case undo:
				return undoGRUB(w, grub)
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
				return applyGRUB(w, grub, words)
			}
			if format == "json" {
				return printJSON(w, words)
			}
			printBoot(w, words)
			return nil
		},
	}
	cmd.Flags().StringVar(&placedFile, "placed", "", "placement with the lanes (what plan -o json prints); without it, the lanes in force")
	cmd.Flags().StringVarP(&format, "output", "o", "text", "text or json")
	cmd.Flags().BoolVar(&apply, "apply", false, "write the line into GRUB's defaults file, and keep the file as it was beside it")
	cmd.Flags().BoolVar(&undo, "undo", false, "put GRUB's defaults file back as it was before the first --apply")
	cmd.Flags().StringVar(&grub, "grub", "/etc/default/grub", "GRUB's defaults file")
	from.flags(cmd)
	cmd.MarkFlagsMutuallyExclusive("apply", "undo")
	return cmd
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
	line := ""
	for _, b := range words {
		line += " " + b.Word
	}
	fmt.Fprintf(w, "line:%s\n", line)
}

// before is where the file is kept as it was.
func before(grub string) string { return grub + ".before-isolane" }

func applyGRUB(w io.Writer, grub string, words []enforce.BootWord) error {
	old, err := os.ReadFile(grub)
	if err != nil {
		return fail(err)
	}
	text, err := enforce.EditGRUB(string(old), words)
	if err != nil {
		return fail(fmt.Errorf("%s: %w", grub, err))
	}
	if text == string(old) {
		fmt.Fprintf(w, "%s has these words already\n", grub)
		return nil
	}
	if _, err = os.Stat(before(grub)); errors.Is(err, fs.ErrNotExist) {
		err = replaceFile(before(grub), string(old))
	}
	if err == nil {
		err = replaceFile(grub, text)
	}
	if err != nil {
		return fail(err)
	}
	fmt.Fprintf(w, "%s is written, as it was it is in %s\nnow run update-grub and start the machine again\n", grub, before(grub))
	return nil
}

func undoGRUB(w io.Writer, grub string) error {
	if err := os.Rename(before(grub), grub); err != nil {
		return fail(err)
	}
	fmt.Fprintf(w, "%s is as it was before isolane\n", grub)
	return nil
}

// replaceFile writes a file that is there complete or not at all.
func replaceFile(name, text string) error {
	f, err := os.CreateTemp(filepath.Dir(name), ".isolane-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) //nolint:errcheck // gone after the rename
	_, err = f.WriteString(text)
	err = errors.Join(err, f.Chmod(0o644), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	return err
}
