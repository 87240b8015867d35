package report

import (
	"bytes"
	"fmt"
	"io"
	"path/filepath"

	"isolane.dev/isolane/results"
	"isolane.dev/isolane/terminal"
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

// Present writes the table of a session to w, and stores its page and charts beside the results.
func Present(w io.Writer, dir string, session results.Session) (Summary, error) {
	s, err := Summarize(session)
	if err == nil {
		err = Text(w, s, terminal.Of(w))
	}
	if err == nil {
		err = Write(dir, s)
	}
	if err == nil {
		_, err = fmt.Fprintf(w, "\nreport: %s\n", filepath.Join(dir, Page))
	}
	return s, err
}
