package settings

import (
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

func TestSettings(t *testing.T) {
	const governor = "sys/devices/system/cpu/cpufreq/policy"
	root := fstest.MapFS{"proc/sys/vm/swappiness": {Data: []byte("60\n")}}
	for i, value := range []string{"performance", "performance", "powersave", "performance"} {
		root[governor+string(rune('0'+i))+"/scaling_governor"] = &fstest.MapFile{Data: []byte(value + "\n")}
	}
	before := Read(root)
	want := map[string]string{"/proc/sys/vm/swappiness": "60",
		"/" + governor + "*/scaling_governor": "2× performance, 1× powersave, 1× performance"}
	if diff := cmp.Diff(want, before); diff != "" {
		t.Error(diff)
	}
	if got := Changed(before, Read(root)); len(got) > 0 {
		t.Errorf("nothing was changed: %v", got)
	}
	delete(root, "proc/sys/vm/swappiness")
	root["proc/sys/vm/stat_interval"] = &fstest.MapFile{Data: []byte("1\n")}
	want = map[string]string{"/proc/sys/vm/swappiness": "", "/proc/sys/vm/stat_interval": "1"}
	if diff := cmp.Diff(want, Changed(before, Read(root))); diff != "" {
		t.Error(diff)
	}
	if got := Changed(nil, before); got != nil {
		t.Errorf("a session that did not record them: %v", got)
	}
}
