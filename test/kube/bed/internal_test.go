package bed

import (
	"net"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"
)

// A process with the id of a recorded one, and another start time, is somebody else's.
func TestSignalNobodyElse(t *testing.T) {
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Wait() }()
	id, err := identify("sleep", cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	other := id
	other.Start += "0"
	if sent, err := other.signal(unix.SIGKILL); sent || err != nil {
		t.Errorf("the process of another time: sent %t, %v", sent, err)
	}
	if sent, err := id.signal(unix.SIGKILL); !sent || err != nil {
		t.Errorf("the process itself: sent %t, %v", sent, err)
	}
}

// No two beds, and no two nodes, have an address in common.
func TestAddresses(t *testing.T) {
	var taken []*net.IPNet
	take := func(n *net.IPNet) {
		for _, other := range taken {
			if other.Contains(n.IP) || n.Contains(other.IP) {
				t.Errorf("%s and %s overlap", n, other)
			}
		}
		taken = append(taken, n)
	}
	_, all, err := net.ParseCIDR("198.19.0.0/16")
	if err != nil {
		t.Fatal(err)
	}
	for bed := range beds {
		take(&net.IPNet{IP: address(bed, 0), Mask: net.CIDRMask(24, 32)})
		for node := range mostNodes {
			take(pods(bed, node))
			if own := taken[len(taken)-1]; !all.Contains(own.IP) {
				t.Errorf("%s is not in %s", own, all)
			}
		}
	}
}
