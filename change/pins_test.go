package change

import "testing"

func FuzzParsePins(f *testing.F) {
	f.Add("/sys/fs/cgroup/cpuset/a\n12:34=0-1\n13:35=2")
	f.Add("/sys/fs/cgroup/a/emulator\n12:34= /sys/fs/cgroup/a/vcpu 0\n13:35=2 /sys/fs/cgroup/a/vcpu1")
	f.Fuzz(func(t *testing.T, value string) {
		head, p, err := parsePins(value)
		if err != nil {
			return
		}
		again, q, err := parsePins(head + p.String())
		if err != nil || again != head || q.String() != p.String() {
			t.Errorf("%q: %q %v, then %q %v, %v", value, head, p, again, q, err)
		}
	})
}
