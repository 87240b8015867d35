package journal

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// file is the content of a file of /proc, /sys or a cgroup, without the white space at its end.
type file struct{}

func (file) Read(_ context.Context, s Step) (string, error) {
	data, err := os.ReadFile(s.Target)
	return strings.TrimRight(string(data), " \t\n"), err
}

func (file) Write(_ context.Context, s Step, value string) error {
	f, err := os.OpenFile(s.Target, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value + "\n")
	return errors.Join(err, f.Close())
}

// present is the value of a directory, namespace or link that exists.
const present = "present"

// dir is a directory: "" or "present". A cgroup is one.
type dir struct{}

func (dir) Read(_ context.Context, s Step) (string, error) {
	switch _, err := os.Stat(s.Target); {
	case errors.Is(err, fs.ErrNotExist):
		return "", nil
	case err != nil:
		return "", err
	}
	return present, nil
}

func (dir) Write(ctx context.Context, s Step, value string) error {
	if value == present {
		return os.Mkdir(s.Target, 0o755)
	}
	// A cgroup stays busy for a moment after its last process has ended.
	return retry(ctx, 2*time.Second, unix.EBUSY, func() error { return unix.Rmdir(s.Target) })
}

// retry calls f until it returns something other than the error again, or limit has passed.
func retry(ctx context.Context, limit time.Duration, again error, f func() error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		err := f()
		if !errors.Is(err, again) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-tick.C:
		}
	}
}

// controller is a controller that a cgroup v2 hands to its children: the name, or "".
type controller struct{}

func (controller) Read(_ context.Context, s Step) (string, error) {
	data, err := os.ReadFile(s.Target)
	if slices.Contains(strings.Fields(string(data)), s.After) {
		return s.After, err
	}
	return "", err
}

func (controller) Write(ctx context.Context, s Step, value string) error {
	sign := "+"
	if value == "" {
		sign = "-"
	}
	return file{}.Write(ctx, s, sign+s.After)
}
