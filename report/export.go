// Package report shows the figures of a session: as text, as a page with charts, and as JSON for programs. It
// reads only a results directory, so a page can be made again from the raw results at any time.
//
// Package figures computes; this one and package chart only print its results.
package report

import (
	"bytes"
	"path/filepath"

	"isolane.dev/isolane/report/figures"
	"isolane.dev/isolane/results"
)

// Write stores the page and the charts of a session in the directory of its results.
func Write(dir string, s figures.Summary) error {
	pictures := newPictures(&s)
	for _, p := range pictures {
		if err := results.WriteFile(filepath.Join(dir, p.File), p.SVG); err != nil {
			return err
		}
	}
	var page bytes.Buffer
	if err := writePage(&page, &s, pictures); err != nil {
		return err
	}
	return results.WriteFile(filepath.Join(dir, pageName), page.Bytes())
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
