package main

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
)

// Whoever packages Isolane without its repository sets these:
// -ldflags "-X main.release=1.2.3 -X main.commit=0123456789ab -X main.date=2026-11-21T12:00:00Z".
var release, commit, date string //nolint:gochecknoglobals // the linker sets variables only

// built is what this program was built from, as far as the build knows it.
type built struct {
	Version  string `json:"version"`          // "devel" between releases
	Commit   string `json:"commit,omitempty"` // of the repository
	Date     string `json:"date,omitempty"`   // of the commit, as in RFC 3339
	Modified bool   `json:"modified"`         // the source had changes beside the commit
	Go       string `json:"go"`               // the Go release that built it
	Platform string `json:"platform"`         // linux/amd64
}

func builtFrom() built {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	return builtAs(info)
}

// builtAs reads what the go command wrote into the program; what packagers say goes first.
func builtAs(info *debug.BuildInfo) built {
	b := built{Go: cmp.Or(info.GoVersion, runtime.Version()), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = s.Value
		case "vcs.time":
			b.Date = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	version := info.Main.Version
	if version == "(devel)" || strings.HasPrefix(version, "v0.0.0-") && b.Commit != "" {
		version = "" // it says no more than the commit
	}
	b.Version = cmp.Or(release, version, "devel")
	b.Commit, b.Date = cmp.Or(commit, b.Commit), cmp.Or(date, b.Date)
	return b
}

// String is one line for a person, and for the record of a measurement.
func (b built) String() string {
	text := b.Version + ", commit " + cmp.Or(b.Commit[:min(12, len(b.Commit))], "unknown")
	if b.Modified {
		text += " with changes"
	}
	if b.Date != "" {
		text += ", " + b.Date
	}
	return text
}

type versionDocument struct {
	head
	built
}

func versionCommand() *cobra.Command {
	var out output
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Show the version and the commit that this program was built from",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if b := builtFrom(); out.json() {
				return printJSON(cmd.OutOrStdout(), versionDocument{document("Version"), b})
			}
			fmt.Fprintf(cmd.OutOrStdout(), "isolane %s\n", builtFrom())
			return nil
		},
	}
	out.flags(cmd, "text", "json")
	return cmd
}
