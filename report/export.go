package report

import (
	"bytes"
	"path/filepath"

	"isolane.dev/isolane/results"
)

// file is one of an export, with its name in the results directory.
type file struct {
	Name string
	Data []byte
}

// exports are the forms in which a session is stored beside its results.
func exports() []func(*Summary, []picture) ([]file, error) {
	return []func(*Summary, []picture) ([]file, error){drawings, htmlPage}
}

func drawings(_ *Summary, pictures []picture) ([]file, error) {
	var all []file
	for _, p := range pictures {
		all = append(all, file{p.File, p.SVG})
	}
	return all, nil
}

func htmlPage(s *Summary, pictures []picture) ([]file, error) {
	var b bytes.Buffer
	err := s.html(&b, pictures)
	return []file{{Page, b.Bytes()}}, err
}

// Write stores the page and the charts of a session in the directory of its results.
func Write(dir string, s Summary) error {
	pictures := s.pictures()
	for _, export := range exports() {
		files, err := export(&s, pictures)
		if err != nil {
			return err
		}
		for _, f := range files {
			if err := results.WriteFile(filepath.Join(dir, f.Name), f.Data); err != nil {
				return err
			}
		}
	}
	return nil
}

// Store stores a session's page and charts beside its results, and returns what they say.
func Store(dir string, session results.Session) (Document, error) {
	s, err := Summarize(session)
	if err == nil {
		err = Write(dir, s)
	}
	if err != nil {
		return Document{}, err
	}
	return s.document(dir), nil
}
