// Package version says what a program was built from.
package version

import (
	"cmp"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"strings"

	"isolane.dev/isolane/lane"
)

// Version is what this program was built from, as far as the build knows it.
type Version struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`             // Version
	Version    string `json:"version"`          // "devel" between releases
	Commit     string `json:"commit,omitempty"` // of the repository
	Date       string `json:"date,omitempty"`   // of the commit, as in RFC 3339
	Modified   bool   `json:"modified"`         // the source had changes beside the commit
	Go         string `json:"go"`               // the Go release that built it
	Platform   string `json:"platform"`         // linux/amd64
}

// Whoever packages a program of Isolane's without its repository sets these: -ldflags "-X NAME.release=1.2.3
// -X NAME.commit=0123456789ab -X NAME.date=2026-11-21T12:00:00Z", NAME being isolane.dev/isolane/version.
var release, commit, date string //nolint:gochecknoglobals // the linker sets variables only

// Of returns what the go command wrote into this program; what packagers say goes first.
func Of() Version {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	return of(info, release, commit, date)
}

func of(info *debug.BuildInfo, release, commit, date string) Version {
	v := Version{APIVersion: lane.APIVersion, Kind: "Version", Go: cmp.Or(info.GoVersion, runtime.Version()),
		Platform: runtime.GOOS + "/" + runtime.GOARCH}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Commit = s.Value
		case "vcs.time":
			v.Date = s.Value
		case "vcs.modified":
			v.Modified = s.Value == "true"
		}
	}
	module := info.Main.Version
	if module == "(devel)" || strings.HasPrefix(module, "v0.0.0-") && v.Commit != "" {
		module = "" // it says no more than the commit
	}
	v.Version = cmp.Or(release, module, "devel")
	v.Commit, v.Date = cmp.Or(commit, v.Commit), cmp.Or(date, v.Date)
	return v
}

// Write writes it for people.
func (v Version) Write(w io.Writer) { fmt.Fprintf(w, "isolane %s\n", v) }

// String is one line for a person, and for the record of a measurement.
func (v Version) String() string {
	text := v.Version + ", commit " + cmp.Or(v.Commit[:min(12, len(v.Commit))], "unknown")
	if v.Modified {
		text += " with changes"
	}
	if v.Date != "" {
		text += ", " + v.Date
	}
	return text
}
