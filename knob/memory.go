package knob

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"isolane.dev/isolane/change"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/plan"
)

// hugepages adds the pages that lanes lack to the pools of their nodes
// (Documentation/admin-guide/mm/hugetlbpage.rst).
func hugepages(v View, p plan.Placement) ([]journal.Step, error) {
	reserve := map[string]uint64{}
	var names []string
	for _, l := range p.Lanes {
		for _, h := range l.Hugepages {
			name := h.Pool() + "/nr_hugepages"
			if h.Reserve > 0 && reserve[name] == 0 {
				names = append(names, name)
			}
			reserve[name] += h.Reserve
		}
	}
	var steps []journal.Step
	for _, name := range names {
		now, err := readPages(v.Root, name)
		if err != nil {
			return nil, err
		}
		surplus, err := readPages(v.Root, path.Join(path.Dir(name), "surplus_hugepages"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		now -= min(now, surplus) // surplus pages, which the kernel frees, are in the count
		steps = append(steps, fileStep("/"+name, strconv.FormatUint(now+reserve[name], 10)))
	}
	return steps, nil
}

func readPages(root fs.FS, name string) (uint64, error) {
	text, err := fs.ReadFile(root, name)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(trim(text), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("/%s: %w", name, err)
	}
	return n, nil
}

func hugepageFiles() []string {
	return []string{"/sys/devices/system/node/node[0-9]*/hugepages/hugepages-[0-9]*kB/nr_hugepages"}
}

// noSwap keeps the lanes' memory from being swapped out, if the machine swaps and has the memory controller.
// With cgroup v2 it forbids swapping (Documentation/admin-guide/cgroup-v2.rst, memory.swap.max). With v1
// memory has its own hierarchy, and the kernel swaps a lane's memory only if it finds no file pages to
// reclaim (Documentation/admin-guide/cgroup-v1/memory.rst, swappiness).
func noSwap(v View, root string, p plan.Placement) ([]journal.Step, error) {
	swaps, err := fs.ReadFile(v.Root, "proc/swaps")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // a kernel that does not swap
	}
	if err != nil || strings.Count(trim(swaps), "\n") == 0 {
		return nil, err
	}
	var steps []journal.Step
	c := v.Host.Kernel.Cgroup
	switch {
	case c.MemoryV1 != nil:
		for _, l := range p.Lanes {
			dir := path.Join(*c.MemoryV1, change.GroupPrefix+l.Name)
			if *c.MemoryV1 != root {
				steps = append(steps, journal.Step{Kind: change.KindCgroup, Target: dir, After: change.Present})
			}
			steps = append(steps, attributeStep(dir, "memory.swappiness", "0"))
		}
	case c.CpusetV1 == nil && slices.Contains(c.UnifiedControllers, "memory"):
		steps = append(steps, journal.Step{Kind: change.KindController,
			Target: change.ControllerTarget(root, "memory"), After: "memory"})
		for _, l := range p.Lanes {
			if v.Own[l.Name] != "" { // if the workload's cgroup has the controller
				if name := path.Join(v.Own[l.Name], swapFile); exists(v.Root, name) {
					steps = append(steps, fileStep(name, "0"))
				}
				continue
			}
			dir := v.laneDir(root, true, l)
			if sharesCPUs(l) { // set it once, for all lanes that share CPUs
				dir = path.Dir(dir)
			}
			if s := attributeStep(dir, swapFile, "0"); !slices.Contains(steps, s) {
				steps = append(steps, s)
			}
		}
	}
	return steps, nil
}

const swapFile = "memory.swap.max"

// MemoryGroup returns the lane's cgroup in the v1 memory hierarchy; "" if it has none.
func MemoryGroup(root fs.FS, h host.Host, lane string) string {
	if h.Kernel.Cgroup.MemoryV1 == nil {
		return ""
	}
	dir := path.Join(*h.Kernel.Cgroup.MemoryV1, change.GroupPrefix+lane)
	if _, err := fs.Stat(root, dir[1:]); err != nil {
		return ""
	}
	return dir
}

func hugepageDefaults(u *Unrecorded) error {
	pools, err := fs.Glob(u.Root, "sys/devices/system/node/node*/hugepages/hugepages-*/nr_hugepages")
	for _, name := range pools {
		if text, rerr := fs.ReadFile(u.Root, name); rerr == nil && trim(text) != "0" {
			u.addUnknown("/"+name, trim(text)+" pages stay: how many of them were the lanes' is not known")
		}
	}
	return err
}
