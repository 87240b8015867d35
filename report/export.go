// Package report shows the figures of a session: as text, as a page with charts, and as JSON for programs. It
// reads nothing but a results directory, so a page can be made again from the raw results at any time.
//
// Package figures computes; this one and package chart only print what it found.
package report

import (
	"bytes"
	"path/filepath"

	"isolane.dev/isolane/report/figures"
	"isolane.dev/isolane/results"
)

// file is one of an export, with its name in the results directory.
type file struct {
	Name string
	Data []byte
}

// exports are the forms in which a session is stored beside its results.
func exports() []export { return []export{drawings, htmlPage} }

type export func(*figures.Summary, []picture) ([]file, error)

func drawings(_ *figures.Summary, pictures []picture) ([]file, error) {
	var all []file
	for _, p := range pictures {
		all = append(all, file{p.File, p.SVG})
	}
	return all, nil
}

func htmlPage(s *figures.Summary, pictures []picture) ([]file, error) {
	var b bytes.Buffer
	err := writePage(&b, s, pictures)
	return []file{{pageName, b.Bytes()}}, err
}

// Write stores the page and the charts of a session in the directory of its results.
func Write(dir string, s figures.Summary) error {
	pictures := newPictures(&s)
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
	s, err := figures.Summarize(session)
	if err == nil {
		err = Write(dir, s)
	}
	if err != nil {
		return Document{}, err
	}
	return newDocument(&s, dir), nil
}
