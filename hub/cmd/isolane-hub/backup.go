package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strconv"

	"filippo.io/age"
	"k8s.io/client-go/rest"

	"isolane.dev/isolane/hub/up"
	"isolane.dev/isolane/lanes"
)

func backup(ctx context.Context, _ lanes.Options, args []string) error {
	var recipient string
	file, c, o, err := admin("backup", args, "a file", nil, func(f *flag.FlagSet) {
		f.StringVar(&recipient, "recipient", "", "public key of age, age1…, whose identity opens the backup")
	})
	if err != nil {
		return err
	}
	to, err := age.ParseX25519Recipient(recipient)
	if err != nil {
		return fmt.Errorf("--recipient: expected a public key of age, as age-keygen prints it: %w", err)
	}
	if err = locate(&o, c); err != nil {
		return err
	}
	return written(file, func(w io.Writer) error { return o.Backup(ctx, w, to) })
}

// locate finds where the hub of this machine is.
func locate(o *up.Options, c *rest.Config) error {
	at, err := url.Parse(c.Host)
	if err == nil {
		o.Host = at.Hostname()
		o.Port, err = strconv.Atoi(at.Port())
	}
	return err
}

// written writes a file, whole or not at all.
func written(file string, write func(io.Writer) error) error {
	made, err := os.CreateTemp(filepath.Dir(file), ".backup-")
	if at, is := errors.AsType[*fs.PathError](err); is { // without the name that nobody gave
		err = at.Err
	}
	if err != nil {
		return fmt.Errorf("%s: expected a file in a folder that can be written: %w", file, err)
	}
	defer os.Remove(made.Name()) // unless it has its name
	err = write(made)
	if err = errors.Join(err, made.Sync(), made.Close()); err != nil {
		return err
	}
	return os.Rename(made.Name(), file)
}

func restore(_ context.Context, _ lanes.Options, args []string) error {
	return unsealed("restore", args, up.Options.Restore,
		"isolane-hub up starts it; hosts that have seen a later state follow it after a rehome")
}

// unsealed makes the folder of a hub of a file that is encrypted.
func unsealed(name string, args []string, do func(up.Options, io.Reader, ...age.Identity) error,
	next string) error {
	var o up.Options
	f := flag.NewFlagSet(name, flag.ContinueOnError)
	f.StringVar(&o.Dir, "dir", hubDir, "folder of the hub, which is made")
	identity := f.String("identity", "", "file with the identity of age that the file is for")
	file, err := parse(f, args, "a file")
	if err != nil {
		return err
	}
	key, err := os.Open(*identity)
	if err != nil {
		return fmt.Errorf("--identity: %w", err)
	}
	defer key.Close()
	with, err := age.ParseIdentities(key)
	if err != nil {
		return fmt.Errorf("--identity %s: %w", *identity, err)
	}
	from, err := os.Open(file)
	if err != nil {
		return err
	}
	defer from.Close()
	if err = do(o, from, with...); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	fmt.Printf("%s: %s\n", o.Dir, next)
	return nil
}
