package workload

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"isolane.dev/isolane/host/hosttest"
	"isolane.dev/isolane/hub/desired"
	"isolane.dev/isolane/netpath/drivers"
)

// A tenant's command finds nothing on its host that has the name of what another tenant has there: no file, and no line of
// what the kernel says of the command and of the host.
func TestOthers(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.CgroupCpuset, hosttest.CPUs(2))
	p := newInstances(t.TempDir())
	p.lanes.Paths, p.lanes.Ops = drivers.Paths(), drivers.Ops()
	const secret = "quetzal"
	run := func(uid, name, tenant, command string, more string) desired.Instance {
		t.Helper()
		argv, err := json.Marshal([]string{"sh", "-c", command})
		if err != nil {
			t.Fatal(err)
		}
		i := desired.Instance{Name: name, Generation: 1, Spec: json.RawMessage(fmt.Sprintf(
			`{"tenant":%q,"lane":{"cpus":{"count":1,"share":4}%s},"command":%s}`, tenant, more, argv))}
		t.Cleanup(func() {
			if eerr := ended(p, uid, i); eerr != nil {
				t.Error(eerr)
			}
		})
		for {
			if err = p.Ensure(t.Context(), uid, i); err == nil {
				break
			}
			if !isNotYet(err) {
				said, _ := os.ReadFile(p.log(name)) // it may have said nothing
				t.Fatalf("%v: %s", err, said)
			}
		}
		return i
	}
	run("a", secret+".web", secret, "exec sleep 1000", `,"network":{"path":"bridge","addresses":["198.51.100.2/24"]}`)
	run("c", secret+".db", secret, "exec sleep 1000", "")
	const look = `echo began
find /sys/fs /sys/class/net /sys/devices/virtual/net /run /dev /tmp /var/tmp /var/lib /etc -name '*quetzal*' 2>/dev/null | sed 's/^/found /'
for f in mountinfo mounts cgroup environ maps net/dev net/unix net/route; do grep -aqs quetzal /proc/self/$f && echo reads $f; done
grep -as quetzal /proc/mounts /proc/keys /proc/locks /proc/sysvipc/*; echo over; exec sleep 1000`
	i := run("b", "acme.spy", "acme", strings.ReplaceAll(look, secret, "quet''zal"), `,"network":{"path":"bridge","addresses":["198.51.100.3/24"]}`)
	for end := time.Now().Add(2 * time.Minute); ; {
		said, err := os.ReadFile(p.log(i.Name))
		if err == nil && strings.HasPrefix(string(said), "began\n") && strings.HasSuffix(string(said), "over\n") {
			if found := strings.TrimSuffix(strings.TrimPrefix(string(said), "began\n"), "over\n"); found != "" {
				t.Errorf("it finds others:\n%s", found)
			}
			return
		}
		if time.Now().After(end) {
			t.Fatalf("it says %s, %v", said, err)
		}
		<-time.After(50 * time.Millisecond)
	}
}
