package results

import (
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// File is the name of the document in a results directory. Packed is its name once it is compressed by
// gzip(1), to be kept; it is read where there is no File.
const (
	File   = "results.json"
	Packed = File + ".gz"
)

// ErrHasResults says that a directory already holds results.
var ErrHasResults = errors.New("already holds results")

// Create makes dir, with its parents, for a new session. It fails with ErrHasResults rather than mix two
// sessions.
func Create(dir string) error {
	for _, name := range []string{File, Packed} {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			return fmt.Errorf("%s %w", dir, ErrHasResults)
		} else if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return os.MkdirAll(dir, 0o755)
}

// Versioned returns s with the version that this package reads and writes.
func (s Session) Versioned() Session {
	s.APIVersion, s.Kind, s.Schema = APIVersion, Kind, Schema
	return s
}

// Write stores s in dir. It replaces the document as a whole: if the disk is full, the old document stays.
func Write(dir string, s Session) (err error) {
	data, err := json.MarshalIndent(s.Versioned(), "", " ")
	if err != nil {
		return err
	}
	return WriteFile(filepath.Join(dir, File), append(data, '\n'))
}

// WriteFile replaces a file as a whole, or leaves it as it was.
func WriteFile(name string, data []byte) (err error) {
	f, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	_, err = f.Write(data)
	if err == nil {
		err = f.Chmod(0o644)
	}
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), name)
}

// document returns the document in dir and the name of its file.
func document(dir string) (name string, data []byte, err error) {
	name = filepath.Join(dir, File)
	if data, err = os.ReadFile(name); !errors.Is(err, fs.ErrNotExist) {
		return name, data, err
	}
	f, perr := os.Open(filepath.Join(dir, Packed))
	if perr != nil {
		return name, nil, err // of File, which is expected
	}
	defer f.Close() // only read
	z, err := gzip.NewReader(f)
	if err == nil {
		data, err = io.ReadAll(z)
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", f.Name(), err)
	}
	return f.Name(), data, err
}

// Read loads the session in dir.
func Read(dir string) (Session, error) {
	name, data, err := document(dir)
	if err != nil {
		return Session{}, err
	}
	head := struct {
		APIVersion, Kind string
		Schema           int
	}{}
	if err = json.Unmarshal(data, &head); err != nil {
		return Session{}, damaged(name, err)
	}
	var s Session
	switch {
	case head.APIVersion != APIVersion || head.Kind != Kind || head.Schema < 1 || head.Schema > Schema:
		return s, fmt.Errorf("%s: expected %s %s of schema 1 to %d, found %s %s of schema %d: "+
			"read a later schema with the isolane that wrote it", name, APIVersion, Kind, Schema,
			head.APIVersion, head.Kind, head.Schema)
	case head.Schema == 1:
		s, err = readFirst(data)
	default:
		err = json.Unmarshal(data, &s)
	}
	if err != nil {
		return s, damaged(name, err)
	}
	return s, nil
}

// damaged says what can be done about a document that is none. Nothing else in its directory has the runs.
func damaged(name string, err error) error {
	return fmt.Errorf("%s: damaged (%w): isolane replaces it as a whole, so something else has cut or changed "+
		"it: copy it again from where it was measured, or measure again into another directory", name, err)
}
