package results

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// File is the name of the document in a results directory.
const File = "results.json"

// ErrHasResults says that a directory holds results already.
var ErrHasResults = errors.New("already holds results")

// Create makes dir for a new session, with its parents; it fails with ErrHasResults rather than
// mix two sessions.
func Create(dir string) error {
	if _, err := os.Stat(filepath.Join(dir, File)); err == nil {
		return fmt.Errorf("%s %w", dir, ErrHasResults)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.MkdirAll(dir, 0o755)
}

// Versioned returns s with the version that this package reads and writes.
func (s Session) Versioned() Session {
	s.APIVersion, s.Kind, s.Schema = APIVersion, Kind, Schema
	return s
}

// Write stores s in dir. The document is replaced as a whole: when the disk is full, the one that
// was there before stays.
func Write(dir string, s Session) (err error) {
	data, err := json.MarshalIndent(s.Versioned(), "", " ")
	if err != nil {
		return err
	}
	return WriteFile(filepath.Join(dir, File), append(data, '\n'))
}

// WriteFile replaces the file name as a whole, or leaves what was there.
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
	var s Session
	if err := json.Unmarshal(data, &s); err != nil {
		return Session{}, fmt.Errorf("%s: %w", name, err)
	}
	if s.APIVersion != APIVersion || s.Kind != Kind || s.Schema != Schema {
		return Session{}, fmt.Errorf("%s: expected %s %s schema %d, found %s %s schema %d",
			name, APIVersion, Kind, Schema, s.APIVersion, s.Kind, s.Schema)
	}
	if s.Scenario.Aims == nil && s.Scenario.Name == "edge" && s.Lane == nil {
		s.Scenario.Aims = edgeAims()
	}
	return s, s.addIntruders(data)
}

// edgeAims are those that sessions of before 2026-11-22 do not have.
func edgeAims() *Aims {
	return &Aims{"noisy-lane-express", []Goal{{Metric: "throughput", Percent: 150}, {Metric: "rtt", Percent: 50},
		{Metric: "rtt", Statistic: P999, Percent: 100}}}
}

// addIntruders reads what sessions of before 2026-11-22 have: tasks on a lane's CPUs apart from the sources.
func (s *Session) addIntruders(data []byte) error {
	type intruder struct {
		CPU, TID     int
		Comm, Remedy string
		Kernel       bool
		Runs         uint64
		Ran          Nanoseconds `json:"ranNanoseconds"`
		Worst        Nanoseconds `json:"worstNanoseconds"`
	}
	var before struct {
		Runs []struct {
			Witness struct{ Intruders []intruder }
		}
	}
	err := json.Unmarshal(data, &before)
	for i, run := range before.Runs {
		w := &s.Runs[i].Witness
		for _, o := range run.Witness.Intruders {
			kind := map[bool]string{false: "task", true: "kernel thread"}[o.Kernel]
			same := func(k Source) bool { return k.CPU == o.CPU && k.TID == o.TID && k.Kind == kind }
			if !slices.ContainsFunc(w.Sources, same) {
				w.Sources = append(w.Sources, Source{CPU: o.CPU, TID: o.TID, Kind: kind, Name: o.Comm,
					Count: &o.Runs, Total: &o.Ran, Longest: &o.Worst, Remedy: o.Remedy})
			}
		}
	}
	return err
}
