package snapshot

import (
	"errors"
	"fmt"
	"io/fs"

	"isolane.dev/isolane/host"
	"isolane.dev/isolane/host/settings"
)

// Source is where a machine is read from. The zero Source is this machine.
type Source struct {
	Root    string // a directory that looks like / of the machine; with Archive, a folder in it
	Archive string // an archive of the machine's /sys and /proc
}

// IsLive reports whether the machine is this one.
func (s Source) IsLive() bool { return s.Archive == "" && (s.Root == "" || s.Root == "/") }

// Open opens the machine's files.
func (s Source) Open() (fs.FS, error) {
	switch {
	case s.Archive != "":
		return Open(s.Archive, s.Root)
	case s.IsLive():
		return host.Live(), nil
	}
	return host.Dir(s.Root)
}

// Read reads the machine, and returns its files too.
func (s Source) Read() (host.Host, fs.FS, error) {
	root, err := s.Open()
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		err = fmt.Errorf("%s: %w", path.Path, path.Err)
	}
	if err != nil {
		return host.Host{}, nil, err
	}
	h, err := host.Read(root)
	if err != nil {
		err = fmt.Errorf("%s%s%w", s.Archive, s.Root, err)
	}
	return h, root, err
}

// Save stores what is read of a machine, for reading elsewhere. The name ends with .tar, .tar.gz or .tar.zst.
func Save(root fs.FS, file string) error {
	rec := Record(root)
	if _, err := host.Read(rec); err != nil {
		return err
	}
	settings.Read(rec) // so that the snapshot can be audited
	return rec.Save(file)
}
