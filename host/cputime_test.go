package host

import (
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

const cpuTimes = `cpu  39562 10569 108950 1027815 2370 0 43804 452 0 0
cpu0 18611 5154 54784 100 20 0 21900 7 0 0
cpu3 20950 5415 54166 200 30 0 21903 8 0 0
intr 1 2 3
`

func TestCPUTimes(t *testing.T) {
	read := func(text string) (map[int]CPUTime, error) {
		return CPUTimes(fstest.MapFS{"proc/stat": {Data: []byte(text)}})
	}
	got, err := read(cpuTimes)
	want := map[int]CPUTime{0: {Busy: 78549, Interrupts: 21900, Idle: 120, Steal: 7}, 3: {Busy: 80531, Interrupts: 21903, Idle: 230, Steal: 8}}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v %s", err, diff)
	}
	for _, text := range []string{"", "cpu  1 2 3 4 5 6 7 8\n", "cpu0 1 2\n", "cpux 1 2 3 4 5 6 7 8\n",
		"cpu0 1 2 3 - 5 6 7 8\n"} {
		if got, err := read(text); err == nil {
			t.Errorf("%q: got %v, want an error", text, got)
		}
	}
}

func FuzzCPUTimes(f *testing.F) {
	f.Add(cpuTimes)
	f.Fuzz(func(t *testing.T, text string) {
		all, err := CPUTimes(fstest.MapFS{"proc/stat": {Data: []byte(text)}})
		for id, times := range all {
			if id < 0 || times.Busy >= 1<<63 || times.Idle >= 1<<63 || times.Steal >= 1<<61 || err != nil {
				t.Errorf("CPU %d: %+v, %v", id, times, err)
			}
		}
	})
}
