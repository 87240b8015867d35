package lanes_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"isolane.dev/isolane/test/kube/bed"
)

// booted is what one boot of a machine tells the next, in the file $ISOLANE_KUBE_BOOTS.
type booted struct {
	Boots    []string // their boot_id
	CPUs     string   // of the lane
	Restarts int      // of its container, by the kubelet's count
}

// A machine is booted again, first after a power cut, which is guest/boots' to make, then by systemctl reboot. The
// pod with a lane is there again with the CPUs that it had, though others are free by then, before the program's first
// instruction; nothing is left of the boot before, and when the pod has gone nothing of the last one.
func TestBoots(t *testing.T) {
	file := os.Getenv("ISOLANE_KUBE_BOOTS")
	if file == "" {
		t.Skip("skipped: needs a machine that is booted again: make test-kube-boots")
	}
	needCPUs(t, 4)
	var b booted
	data, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(data, &b)
	} else if os.IsNotExist(err) {
		err = nil
	}
	id, ierr := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil || ierr != nil {
		t.Fatal(err, ierr)
	}
	c := start(t, bed.Options{})
	left, err := filepath.Glob(c.node.Path("/var/run/cdi/isolane.dev-lane-*"))
	if none := c.noLanes(); none != nil || err != nil || len(left) > 0 {
		t.Fatalf("of the boot before: lanes %v, files of claims %v %v", none, left, err)
	}
	c.run(t)
	if len(b.Boots) == 0 {
		c.lane(t, "first", "", "1")
		c.ready(t, "first")
		c.lane(t, "edge", "", "3")
		c.ready(t, "edge")
		b.CPUs = c.cpusOf(t, "edge")
		c.delete(t, "first") // its CPU is the one that another lane would get
	} else {
		c.until(t, "the container runs again", func() error {
			text, kerr := c.tryKubectl(t, "", "get", "pod", "edge", "-o", "jsonpath={.status.containerStatuses[0].restartCount}")
			now := 0
			if _, serr := fmt.Sscan(text, &now); kerr == nil && (serr != nil || now <= b.Restarts || len(c.processesNow("edge")) == 0) {
				kerr = fmt.Errorf("%q restarts, %d before", text, b.Restarts)
			}
			return kerr
		})
		c.ready(t, "edge")
	}
	c.spin(t, "noisy", "", "6")
	log := c.kubectl(t, "", "logs", "edge")
	t.Logf("boot %d, %s: the lane had CPUs %s; kubectl logs edge:\n%s", len(b.Boots)+1, strings.TrimSpace(string(id)), b.CPUs, log)
	if now := c.cpusOf(t, "edge"); now != b.CPUs || !strings.Contains(log, "allowed at the start: "+b.CPUs+"\n") {
		t.Errorf("CPUs %s, expected %s from the start", now, b.CPUs)
	}
	c.apart(t, b.CPUs, "edge", "noisy")
	c.kubectl(t, "", "delete", "pod", "noisy", "--wait")
	restarts := c.kubectl(t, "", "get", "pod", "edge", "-o", "jsonpath={.status.containerStatuses[0].restartCount}")
	if _, err = fmt.Sscan(restarts, &b.Restarts); err != nil {
		t.Fatal(err)
	}
	b.Boots = append(b.Boots, strings.TrimSpace(string(id)))
	if data, err = json.Marshal(b); err == nil {
		err = os.WriteFile(file+".new", data, 0o600)
	}
	if err == nil {
		err = os.Rename(file+".new", file)
	}
	if err != nil || t.Failed() {
		t.Fatal(err)
	}
	switch len(b.Boots) {
	case 2:
		if out, err := exec.Command("systemctl", "reboot").CombinedOutput(); err != nil {
			t.Fatalf("systemctl reboot: %v: %s", err, out)
		}
		fallthrough
	case 1:
		select {} // until this boot ends
	}
	c.delete(t, "edge")
	c.until(t, "the lane is released", c.noLanes)
}
