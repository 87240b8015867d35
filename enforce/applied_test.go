package enforce

import (
	"path/filepath"
	"strings"
	"testing"

	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/plan"
)

// A record from another version is refused with the name of its file, and never guessed, and a record from
// before a reboot is ignored.
func TestStateOfAnotherVersion(t *testing.T) {
	boot, err := journal.BootID()
	if err != nil {
		t.Skip("skipped: needs a boot id: ", err)
	}
	const here = `{"apiVersion":"` + plan.APIVersion + `","kind":"AppliedLanes","bootID":"BOOT","placement":{"apiVersion":"` + plan.APIVersion +
		`","kind":"Placement","host":{"hostname":"h","cpus":"0-1"},"lanes":[],"housekeeping":"0-1","cost":{},"optimal":true}}`
	for _, c := range []struct{ name, from, to, err string }{
		{"as it is", "", "", ""},
		{"a later apiVersion", plan.APIVersion + `","kind":"AppliedLanes`, `isolane.dev/v9","kind":"AppliedLanes`, "isolane.dev/v9"},
		{"a field that this version does not know", `"placement"`, `"paths":{},"placement"`, `unknown field "paths"`},
		{"a field of a lane that it does not know", `"lanes":[]`, `"lanes":[{"name":"a","cpus":"0","gpus":1}]`, `unknown field "gpus"`},
		{"of another boot", `"BOOT"`, `"other"`, ""},
	} {
		dir := t.TempDir()
		text := strings.Replace(strings.Replace(here, c.from, c.to, 1), "BOOT", boot, 1)
		file := filepath.Join(dir, stateFile)
		_, err := readApplied(dir, text)
		switch {
		case c.err == "" && err != nil, c.err != "" && err == nil:
			t.Errorf("%s: %v", c.name, err)
		case c.err != "" && (!strings.Contains(err.Error(), c.err) || !strings.HasPrefix(err.Error(), file+": ")):
			t.Errorf("%s: %v", c.name, err)
		}
	}
}
