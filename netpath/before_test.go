package netpath_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// besides is what lanes' paths may leave in the kernel besides devices and namespaces: qdiscs and filters of devices
// with names of ours, programs and maps with the names of our objects, programs on devices by links, nftables.
func besides(t *testing.T) string {
	t.Helper()
	said := func(argv ...string) string { // "" where the kernel or the host has none
		out, _ := exec.CommandContext(context.WithoutCancel(t.Context()), argv[0], argv[1:]...).Output()
		return string(out)
	}
	var all []string
	for line := range strings.Lines(said("tc", "qdisc", "show")) {
		if strings.Contains(line, " dev isl") {
			all = append(all, line)
		}
	}
	devices, err := filepath.Glob("/sys/class/net/isl*")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range devices {
		for _, hook := range []string{"ingress", "egress", "root"} {
			if filters := said("tc", "filter", "show", "dev", filepath.Base(d), hook); filters != "" {
				all = append(all, filepath.Base(d)+" "+hook+" "+filters)
			}
		}
	}
	all = append(all, programs(t)...)
	return strings.Join(append(all, said("nft", "list", "ruleset")), "")
}

// programs are the eBPF objects of ours in the kernel, and all links of programs with devices.
func programs(t *testing.T) (all []string) {
	t.Helper()
	ours := []string{"express", "police", "table", "sources", "buckets"}
	add := func(kind, name string, id any) {
		if slices.Contains(ours, name) {
			all = append(all, fmt.Sprintln(kind, id, name))
		}
	}
	var err error
	for id := ebpf.ProgramID(0); err == nil; {
		if id, err = ebpf.ProgramGetNextID(id); err != nil {
			break
		}
		if p, perr := ebpf.NewProgramFromID(id); perr == nil { // else it has gone meanwhile
			if info, ierr := p.Info(); ierr == nil {
				add("program", info.Name, id)
			}
			_ = p.Close()
		}
	}
	for id := ebpf.MapID(0); err == nil || errors.Is(err, fs.ErrNotExist); {
		if id, err = ebpf.MapGetNextID(id); err != nil {
			break
		}
		if m, merr := ebpf.NewMapFromID(id); merr == nil {
			if info, ierr := m.Info(); ierr == nil {
				add("map", info.Name, id)
			}
			_ = m.Close()
		}
	}
	var on link.Iterator
	defer on.Close()
	for on.Next() {
		info, ierr := on.Link.Info()
		if ierr == nil && slices.Contains([]link.Type{link.TCXType, link.XDPType, link.NetkitType, link.NetfilterType}, info.Type) {
			all = append(all, fmt.Sprintln("link", info.ID, info.Type))
		}
	}
	return all
}

// settled is what is shown once that is as it was, or after some seconds: the kernel frees programs, and a switch its
// devices, a moment after they say that it is done.
func settled(was string, shown func() string) string {
	now := shown()
	for begun := time.Now(); now != was && time.Since(begun) < 5*time.Second; now = shown() {
		<-time.After(10 * time.Millisecond)
	}
	return now
}
