package report

import (
	"bytes"
	"path/filepath"

	"isolane.dev/isolane/results"
)

// document is a session with its charts, which several exports show.
type document struct {
	*Summary
	charts []*chart
}

// file is one of an export, with its name in the results directory.
type file struct {
	Name string
	Data []byte
}

// exports are the forms in which a session is stored beside its results.
func exports() []func(document) ([]file, error) {
	return []func(document) ([]file, error){document.pictures, document.page}
}

func (d document) pictures() ([]file, error) {
	var all []file
	for _, c := range d.charts {
		all = append(all, file{c.File, c.SVG})
	}
	return all, nil
}

func (d document) page() ([]file, error) {
	var b bytes.Buffer
	err := d.html(&b)
	return []file{{Page, b.Bytes()}}, err
}

// Write stores the page and the charts of a session in the directory of its results.
func Write(dir string, s Summary) error {
	d := document{Summary: &s}
	var err error
	if d.charts, err = s.charts(); err != nil {
		return err
	}
	for _, export := range exports() {
		files, err := export(d)
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
