package desired

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// version is the version of the state files that this program reads and writes.
const version = 1

// Load reads a state from its file. A missing file is a state without a hub.
func Load(file string) (State, error) {
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return State{Version: version}.clone(), nil
	}
	if err != nil {
		return State{}, err
	}
	s, err := parse(data)
	if err != nil {
		return s, fmt.Errorf("%s: %w", file, err)
	}
	return s, nil
}

func parse(data []byte) (State, error) {
	var s State
	if err := json.Unmarshal(data, &s); err != nil {
		return s, fmt.Errorf("expected the state of a host: %w", err)
	}
	if s.Version != version {
		return s, fmt.Errorf("version: expected %d, found %d: install the isolane-hub that wrote it, or a newer "+
			"one; what runs goes on", version, s.Version)
	}
	names := map[string]string{}
	for uid, i := range s.Instances {
		if other, twice := names[i.Name]; twice || i.Name == "" {
			return s, fmt.Errorf("instances: %s: expected a name of its own, found %q, which %q has",
				uid, i.Name, other)
		}
		names[i.Name] = uid
	}
	return s.clone(), nil
}

// Write writes a state to its file. After a power failure the file has the old or the new content, whole.
func (s State) Write(file string) error {
	s.Version = version
	data, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return WriteFile(file, append(data, '\n'))
}

// WriteFile writes a file that only root reads. After a power failure the file has the old or the new
// content, whole.
func WriteFile(file string, data []byte) (err error) {
	defer func() {
		if at, is := errors.AsType[*fs.PathError](err); is { // not of the temporary file, which nobody has named
			err = fmt.Errorf("%s: expected a disk that has room and can be written: %w", file, at.Err)
		}
	}()
	made, err := os.CreateTemp(filepath.Dir(file), ".new-")
	if err != nil {
		return err
	}
	defer os.Remove(made.Name())
	_, err = made.Write(data)
	if err = errors.Join(err, made.Sync(), made.Close()); err != nil {
		return err
	}
	if err = os.Rename(made.Name(), file); err != nil {
		return err
	}
	return Sync(filepath.Dir(file))
}

// Sync flushes a folder to disk: which files were made, renamed or removed in it.
func Sync(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
