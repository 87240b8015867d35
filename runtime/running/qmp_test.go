package running

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestQMPSocket(t *testing.T) {
	for args, want := range map[string]string{
		"qemu -m 1G -qmp unix:/run/q,server=on,wait=off": "/run/q",
		"qemu -qmp unix:path=/run/q,server=on":           "/run/q",
		"qemu --qmp-pretty unix:q":                       "q",
		"qemu -qmp tcp:localhost:4444,server=on":         "",
		"qemu -qmp":                                      "",
		"qemu -chardev socket,id=m,path=/run/a,,b,server=on -mon chardev=m,mode=control":    "/run/a,b",
		"qemu -mon m,mode=control -chardev socket,path=/run/q,id=m":                         "/run/q",
		"qemu -chardev socket,id=m,path=/run/q -mon chardev=m,mode=readline":                "",
		"qemu -chardev socket,id=m,fd=27,server=on -mon chardev=m,id=monitor,mode=control":  "",
		"qemu -chardev pty,id=m,path=/dev/pts/1 -mon chardev=m,mode=control":                "",
		"qemu -chardev socket,id=m,path=q,abstract=on -mon chardev=m,mode=control -smp 2,x": "",
	} {
		if got := qmpSocket(strings.Split(args, " ")); got != want {
			t.Errorf("%s: %q, want %q", args, got, want)
		}
	}
}

// peer is a QEMU that has said all it will say.
type peer struct {
	says *strings.Reader
	told bytes.Buffer
}

func (p *peer) Read(b []byte) (int, error)  { return p.says.Read(b) }
func (p *peer) Write(b []byte) (int, error) { return p.told.Write(b) }

const talk = `{"QMP": {"version": {}, "capabilities": []}}
{"timestamp": {}, "event": "RESUME"}
{"return": {}}
{"return": [{"cpu-index": 0, "thread-id": 11, "qom-path": "/x"}, {"cpu-index": 1, "thread-id": 12}]}
`

func TestAskCPUs(t *testing.T) {
	p := &peer{says: strings.NewReader(talk)}
	got, err := askCPUs(p)
	if d := cmp.Diff(map[int]int{0: 11, 1: 12}, got); d != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, d)
	}
	if want := "{\"execute\":\"qmp_capabilities\"}\n{\"execute\":\"query-cpus-fast\"}\n"; p.told.String() != want {
		t.Errorf("sent %q", p.told.String())
	}
	for _, says := range []string{"", "{}", `{"QMP":{}}{"error":{"class":"x","desc":"no"}}`, `{"QMP":{}}{"return":{}}{"return":[{}]}`} {
		if got, err := askCPUs(&peer{says: strings.NewReader(says)}); err == nil {
			t.Errorf("%q: %v", says, got)
		}
	}
}

func FuzzQMPSocket(f *testing.F) {
	f.Add("-chardev\x00socket,id=m,path=/run/a,,b\x00-mon\x00chardev=m,mode=control")
	f.Fuzz(func(_ *testing.T, cmdline string) { qmpSocket(strings.Split(cmdline, "\x00")) })
}

func FuzzAskCPUs(f *testing.F) {
	f.Add(talk)
	f.Fuzz(func(_ *testing.T, says string) { _, _ = askCPUs(&peer{says: strings.NewReader(says)}) })
}
