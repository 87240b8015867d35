package results

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// File is the name of the document in a results directory.
const File = "results.json"

// ErrHasResults says that a directory already holds results.
var ErrHasResults = errors.New("already holds results")

// Create makes dir, with its parents, for a new session, and in it an empty document: another session, even
// of a machine that shares the directory, gets ErrHasResults rather than mix the two. Abandon must follow.
func Create(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	name := filepath.Join(dir, File)
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	switch info, serr := os.Stat(name); {
	case err == nil:
		return f.Close()
	case errors.Is(err, fs.ErrExist) && serr == nil && info.Size() == 0:
		return fmt.Errorf("%s %w of a session that has stored no run: where none is running, remove %s", dir,
			ErrHasResults, name)
	case errors.Is(err, fs.ErrExist):
		return fmt.Errorf("%s %w", dir, ErrHasResults)
	}
	return err
}

// Abandon removes the document that Create made, if nothing was stored since.
func Abandon(dir string) error {
	name := filepath.Join(dir, File)
	if info, err := os.Stat(name); err != nil || info.Size() > 0 {
		return err
	}
	return os.Remove(name)
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

// Read loads the session in dir.
func Read(dir string) (Session, error) {
	name := filepath.Join(dir, File)
	data, err := os.ReadFile(name)
	if err != nil {
		return Session{}, err
	}
	if len(data) == 0 {
		return Session{}, fmt.Errorf("%s: empty: the session has stored no run yet, or something else has "+
			"emptied it", name)
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
