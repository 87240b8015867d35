package version

import (
	"runtime/debug"
	"testing"
)

// What the go command wrote into the program is what version says.
func TestOf(t *testing.T) {
	const revision = "f89b508e0bc4ead51b38e71df5cb2a5068d9bd77"
	stamps := []debug.BuildSetting{{Key: "vcs.revision", Value: revision}, {Key: "vcs.time", Value: "2026-11-21T22:57:14Z"}}
	for _, c := range []struct {
		version  string
		settings []debug.BuildSetting
		want     string
	}{
		{"(devel)", nil, "devel, commit unknown"},
		{"v0.0.0-20261121225714-f89b508e0bc4", stamps, "devel, commit f89b508e0bc4, 2026-11-21T22:57:14Z"},
		{"v0.0.0-20261121225714-f89b508e0bc4+dirty", append(stamps, debug.BuildSetting{Key: "vcs.modified", Value: "true"}),
			"devel, commit f89b508e0bc4 with changes, 2026-11-21T22:57:14Z"},
		{"v1.2.3", stamps, "v1.2.3, commit f89b508e0bc4, 2026-11-21T22:57:14Z"},
		{"v0.0.0-20261121225714-f89b508e0bc4", nil, "v0.0.0-20261121225714-f89b508e0bc4, commit unknown"}, // go install PATH@COMMIT
	} {
		got := of(&debug.BuildInfo{Main: debug.Module{Version: c.version}, Settings: c.settings}, "", "", "")
		if got.String() != c.want {
			t.Errorf("%s, %v: %s; want %s", c.version, c.settings, got, c.want)
		}
	}
}
