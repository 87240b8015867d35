package workload

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"isolane.dev/isolane/host/hosttest"
	"isolane.dev/isolane/hub/desired"
	"isolane.dev/isolane/netpath/drivers"
)

// secret is in all names of another tenant's things.
const secret = "quetzal"

// searchScript is a script that searches for that. What it finds is between the lines "began" and "over".
const searchScript = `echo began
B find /sys/fs /sys/class /sys/devices/virtual /sys/kernel /run /dev /tmp /var /etc /proc/sys -name '*quet''zal*' 2>/dev/null | B sed 's/^/found /'
for f in mountinfo mounts cgroup environ maps net/dev net/unix net/route; do B grep -aqs quet''zal /proc/self/$f && echo reads $f; done
B grep -as quet''zal /proc/mounts /proc/keys /proc/locks /proc/sysvipc/* /sys/fs/cgroup/cgroup.procs; echo over; exec B sleep 1000`

// others makes two lanes of another tenant, one with a network path. It returns functions that start more,
// and that return what one of these finds.
func others(t *testing.T, p *Instances) (run func(uid, name, workload, more string), finds func(name string) string) {
	t.Helper()
	hosttest.Need(t, hosttest.Root, hosttest.CgroupCpuset, hosttest.CPUs(2))
	p.lanes.Paths, p.lanes.Ops = drivers.Paths(), drivers.Ops()
	run = func(uid, name, workload, more string) {
		t.Helper()
		tenant, _, _ := strings.Cut(name, ".")
		i := desired.Instance{Name: name, Generation: 1, Spec: json.RawMessage(fmt.Sprintf(
			`{"tenant":%q,"lane":{"cpus":{"count":1,"share":8}%s},%s}`, tenant, more, workload))}
		t.Cleanup(func() {
			if err := endResult(p, uid, i); err != nil {
				t.Error(err)
			}
		})
		for {
			err := p.Ensure(t.Context(), uid, i)
			if err == nil {
				return
			}
			if !isNotYet(err) {
				said, _ := os.ReadFile(p.logFile(name)) // there may be no output
				t.Fatalf("%v: %s", err, said)
			}
		}
	}
	run("a", secret+".web", sh("exec sleep 1000"), `,"network":{"path":"bridge","addresses":["198.51.100.2/24"]}`)
	run("c", secret+".db", sh("exec sleep 1000"), "")
	return run, func(name string) string {
		t.Helper()
		for end := time.Now().Add(2 * time.Minute); ; {
			said, err := os.ReadFile(p.logFile(name))
			if err == nil && strings.HasPrefix(string(said), "began\n") && strings.HasSuffix(string(said), "over\n") {
				return strings.TrimSuffix(strings.TrimPrefix(string(said), "began\n"), "over\n")
			}
			if time.Now().After(end) {
				t.Fatalf("it says %s, %v", said, err)
			}
			<-time.After(50 * time.Millisecond)
		}
	}
}

// sh returns a command that runs a script in a shell.
func sh(script string) string {
	argv, _ := json.Marshal([]string{"sh", "-c", strings.ReplaceAll(script, "B ", "")}) // strings can always be encoded
	return `"command":` + string(argv)
}

// A tenant's command finds nothing on its host with the name of another tenant's things: no file, and no line
// of what the kernel says about the command and the host.
func TestOthers(t *testing.T) {
	p := newInstances(t.TempDir())
	run, finds := others(t, p)
	run("b", "acme.spy", sh(searchScript), `,"network":{"path":"bridge","addresses":["198.51.100.3/24"]}`)
	if found := finds("acme.spy"); found != "" {
		t.Errorf("it finds others:\n%s", found)
	}
}

// A tenant's container finds only the devices of others, and only if it is in the host's network.
func TestOthersContainer(t *testing.T) {
	image := ownPodman(t)
	p := newInstances(t.TempDir())
	run, finds := others(t, p)
	busybox := func(script string) string {
		argv, _ := json.Marshal([]string{"/bin/busybox", "sh", "-c", strings.ReplaceAll(script, "B ", "/bin/busybox ")}) // strings can always be encoded
		return fmt.Sprintf(`"image":%q,"command":%s`, image, argv)
	}
	run("d", secret+".box", busybox("exec B sleep 1000"), "")
	run("b", "acme.spy", busybox(searchScript), `,"network":{"path":"bridge","addresses":["198.51.100.3/24"]}`)
	if found := finds("acme.spy"); found != "" {
		t.Errorf("it finds others:\n%s", found)
	}
	run("e", "acme.host", busybox(searchScript), "")
	devices := []string{"found /sys/class/net/", "found /sys/devices/virtual/net/", "found /proc/sys/net/", "reads net/dev\n"}
	for line := range strings.Lines(finds("acme.host")) {
		if !slices.ContainsFunc(devices, func(of string) bool { return strings.HasPrefix(line, of) }) {
			t.Errorf("in the host's network it finds others: %s", line)
		}
	}
}
