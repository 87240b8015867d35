package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"filippo.io/age"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"isolane.dev/isolane/cli"
	"isolane.dev/isolane/hub/up"
)

func backupCommand() *cobra.Command {
	var a admin
	var recipient string
	cmd := &cobra.Command{
		Use:   "backup FILE --recipient age1…",
		Short: "Save a hub, while it runs, into an encrypted file",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			to, err := sealedFor(recipient)
			if err != nil {
				return err
			}
			if _, err = a.config(); err != nil {
				return err
			}
			return written(args[0], func(w io.Writer) error { return a.Backup(cmd.Context(), w, to) })
		},
	}
	a.flags(cmd)
	cmd.Flags().StringVar(&recipient, "recipient", "",
		"public key of age, age1…, whose identity opens the backup")
	return cmd
}

// sealedFor parses the public key of the person who can open a file.
func sealedFor(recipient string) (*age.X25519Recipient, error) {
	to, err := age.ParseX25519Recipient(recipient)
	if err != nil {
		err = cli.Usage(fmt.Errorf("--recipient: expected a public key of age, as age-keygen prints it: %w", err))
	}
	return to, err
}

// written writes a file, whole or not at all. It leaves alone what is no file: a device or a pipe would be
// replaced.
func written(file string, write func(io.Writer) error) error {
	if is, err := os.Stat(file); err == nil && !is.Mode().IsRegular() {
		return cli.Usage(fmt.Errorf("%s: expected a file, or none yet", file))
	}
	made, err := os.CreateTemp(filepath.Dir(file), ".backup-")
	if at, is := errors.AsType[*fs.PathError](err); is { // without the temporary name, which nobody gave
		err = at.Err
	}
	if err != nil {
		return fmt.Errorf("%s: expected a file in a folder that can be written: %w", file, err)
	}
	defer os.Remove(made.Name()) // fails if it was renamed
	err = write(made)
	if err = errors.Join(err, made.Sync(), made.Close()); errors.Is(err, unix.ENOSPC) {
		err = fmt.Errorf("%s: expected room for it on its disk: %w", file, unix.ENOSPC)
	}
	if err != nil {
		return err
	}
	return os.Rename(made.Name(), file)
}

func restoreCommand() *cobra.Command {
	return unsealed("restore", "Make the hub's folder from a backup", up.Options.Restore,
		"isolane-hub up starts it; hosts that have seen a later state follow it after isolane-hub rehome there")
}

// unsealed returns a command that makes the folder of a hub from an encrypted file.
func unsealed(name, short string, do func(up.Options, io.Reader, ...age.Identity) error,
	next string) *cobra.Command {
	var o up.Options
	var identity string
	cmd := &cobra.Command{
		Use:   name + " FILE --identity KEY",
		Short: short,
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			key, err := os.Open(identity)
			if err != nil {
				return cli.Usage(fmt.Errorf("--identity: %w", err))
			}
			defer key.Close()
			with, err := age.ParseIdentities(key)
			if err != nil {
				return cli.Usage(fmt.Errorf("--identity %s: %w", identity, err))
			}
			from, err := os.Open(args[0])
			if err != nil {
				return cli.Usage(err)
			}
			defer from.Close()
			err = do(o, from, with...)
			if _, other := errors.AsType[*age.NoIdentityMatchError](err); other {
				return fmt.Errorf("--identity %s: expected that for whose recipient %s is", identity, args[0])
			}
			if err != nil {
				return fmt.Errorf("%s: %w", args[0], err)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s: %s\n", o.Dir, next)
			return nil
		},
	}
	cmd.Flags().StringVar(&o.Dir, "dir", hubDir, "folder of the hub; it is made")
	cmd.Flags().StringVar(&identity, "identity", "", "file with the identity of age for which FILE is encrypted")
	return cmd
}
