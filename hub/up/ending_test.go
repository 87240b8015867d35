package up

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A program's last words name the option that they are about. Lines of an earlier run do not count.
func TestEnding(t *testing.T) {
	const trace = "\n\ngoroutine 1 [running]:\nmain.main()\n\tmain.go:31 +0x28\n"
	o := Options{Dir: "/hub", Audit: "policy.yaml", Authentication: "people.yaml"}
	for _, row := range []struct{ name, program, earlier, log, want string }{
		{"a policy", "kube-apiserver", "", `E1127 06:49:09.852347    8406 run.go:72] "command failed" err="loading audit policy file: rules[0].level: Unsupported value: \"Loud\""`,
			`--audit policy.yaml: expected a policy that the API server takes: kube-apiserver has ended 3 times: loading audit policy file: rules[0].level: Unsupported value: "Loud"`},
		{"people", "kube-apiserver", "", `E1127 06:49:47.858231   16335 run.go:72] "command failed" err="invalid authentication configuration: jwt[0].issuer.url: Required value"`,
			"--authentication people.yaml: expected a file that the API server takes: kube-apiserver has ended 3 times: invalid"},
		{"a full disk", "etcd", "", `{"level":"panic","ts":"2026-11-27T06:50:55Z","msg":"failed to create WAL","error":"no space left on device","stacktrace":"go.etcd.io"}` +
			"\npanic: failed to create WAL" + trace,
			"--dir /hub: expected room on its disk: etcd has ended 3 times: failed to create WAL: no space left on device"},
		{"a later store", "etcd", "", `{"level":"fatal","msg":"discovery failed","error":"version \"3.8.0\" is not supported"}`,
			`--dir /hub: expected a store that no later version has written: etcd has ended 3 times: discovery failed: version "3.8.0"`},
		{"another cause", "kube-apiserver", `E1127 06:49:09.852347    8406 run.go:72] "command failed" err="loading audit policy file: it was"` + "\n",
			"F1127 06:49:09.852347    8406 hooks.go:204] PostStartHook failed" + trace,
			"expected kube-apiserver to run: kube-apiserver has ended 3 times: PostStartHook failed"},
		{"a signal", "etcd", `{"level":"fatal","msg":"it was"}` + "\n", "ready\nserving\n", "expected etcd to run: etcd has ended 3 times: serving"},
	} {
		t.Run(row.name, func(t *testing.T) {
			log := filepath.Join(t.TempDir(), "log")
			if err := os.WriteFile(log, []byte(row.earlier+row.log), 0o600); err != nil {
				t.Fatal(err)
			}
			e := ending{row.program, lastWord(log, int64(len(row.earlier)))}
			if err := o.giveUp(e, 2, false); err != nil {
				t.Errorf("after two endings: %v", err)
			}
			if err := o.giveUp(e, 3, false); err == nil || !strings.HasPrefix(err.Error(), row.want) {
				t.Errorf("found %v\nexpected %s", err, row.want)
			}
			known := strings.HasPrefix(row.want, "--")
			if err := o.giveUp(e, 3, true); (err != nil) != known {
				t.Errorf("where other hubs are: %v", err)
			}
		})
	}
}
