package enforce

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/knob"
	"isolane.dev/isolane/plan"
)

// An interrupt that came while lanes were in force, with the CPUs that they leave, follows the lanes and gets
// all CPUs when they go. Interrupts that existed before, or were moved since, are left alone.
func TestInterruptsThatComeLater(t *testing.T) {
	b := standIn(t, "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0")
	list := func(irq int) string { return fmt.Sprintf("proc/irq/%d/smp_affinity_list", irq) }
	come := func(irq int, cpus string) {
		f, err := os.OpenFile(filepath.Join(b.root, "proc/interrupts"), os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		fmt.Fprintf(f, " %d: 0 0 0 0 PCI-MSI 9-edge other\n", irq)
		b.write(t, list(irq), cpus)
		b.write(t, fmt.Sprintf("proc/irq/%d/node", irq), "0")
	}
	expect := func(when string, want ...string) {
		t.Helper()
		for i, w := range want {
			got, err := os.ReadFile(filepath.Join(b.root, list(40+i)))
			if err != nil || strings.TrimSpace(string(got)) != w {
				t.Errorf("%s: interrupt %d has %q, expected %s, %v", when, 40+i, got, w, err)
			}
		}
	}
	goes := func(irq int) {
		file := filepath.Join(b.root, "proc/interrupts")
		text, err := os.ReadFile(file)
		lines := slices.DeleteFunc(slices.Collect(strings.Lines(string(text))), func(line string) bool {
			return strings.HasPrefix(line, fmt.Sprintf(" %d:", irq))
		})
		err = errors.Join(err, os.WriteFile(file, []byte(strings.Join(lines, "")), 0o600),
			os.RemoveAll(filepath.Join(b.root, fmt.Sprintf("proc/irq/%d", irq))))
		if err != nil {
			t.Fatal(err)
		}
	}
	come(40, "0-1")
	come(45, "0-3")
	one := placement() // has CPUs 2 and 3
	other := one
	other.Lanes = []plan.Lane{{Name: "b", CPUs: cpuset.Of(3), MemoryNodes: cpuset.Of(0), Spec: one.Lanes[0].Spec}}
	other.Housekeeping = cpuset.MustParse("0-2")
	for _, p := range []plan.Placement{one, other, noLanes()} {
		if err := b.apply(t, knob.Ops(b.root), p); err != nil {
			t.Fatal(err)
		}
		switch p.Housekeeping {
		case one.Housekeeping:
			come(41, "0-1")
			come(42, "1")
			goes(45)
		case other.Housekeeping:
			expect("with another lane", "0-1", "0-2", "1")
			come(43, "0-2")
			come(44, "0-1") // while one lane replaces the other
			come(45, "0-2") // again, with its earlier number
		}
	}
	expect("without lanes", "0-1", "0-3", "1", "0-3", "0-3", "0-3")
}
