package settings

import (
	"path"
	"slices"
	"strings"

	"isolane.dev/isolane/cpuset"
)

// Banned returns the CPUs that irqbalance is configured to leave alone, and the line that says so, with its
// file; "" if there is no such line. If the list is wrong or empty it returns no CPUs.
func (s *Settings) Banned() (cpus cpuset.Set, line string) {
	for _, file := range s.balancerFiles() {
		for text := range strings.Lines(s.Files[file]) {
			text = strings.TrimSpace(text)
			if strings.HasPrefix(text, "#") || strings.HasPrefix(text, ";") {
				continue
			}
			for _, word := range balancerWords(text) {
				key, list, _ := strings.Cut(word, "=")
				parse, ok := map[string]func(string) (cpuset.Set, error){"ISOLANE_CPUS": cpuset.Parse,
					"IRQBALANCE_BANNED_CPULIST": cpuset.Parse, "IRQBALANCE_BANNED_CPUS": cpuset.ParseMask}[key]
				if ok {
					cpus, _ = parse(list)
					line = file + ": " + text
				}
			}
		}
	}
	return cpus, line
}

// balancerFiles returns the files that set irqbalance's environment; the last one counts. First are drop-ins
// of its service, by name. Next are the files that the services of Debian and Fedora read, which take
// precedence over Environment= (systemd.exec(5)). Last is the drop-in of lanes in force.
func (s *Settings) balancerFiles() []string {
	const ours = "/run/systemd/system/irqbalance.service.d/50-isolane.conf"
	files := slices.DeleteFunc(s.Optional("/*/systemd/system/irqbalance.service.d/*.conf"),
		func(file string) bool { return file == ours })
	slices.SortStableFunc(files, func(a, b string) int { return strings.Compare(path.Base(a), path.Base(b)) })
	return append(files, "/etc/default/irqbalance", "/etc/sysconfig/irqbalance", ours)
}

// balancerWords returns the assignments of a line, without quotes.
func balancerWords(line string) []string {
	line = strings.TrimPrefix(strings.TrimPrefix(line, "export "), "Environment=")
	return strings.Fields(strings.NewReplacer(`"`, "", "'", "").Replace(line))
}

// The services that manage network devices.
const (
	networkd       = "systemd-networkd"
	NetworkManager = "NetworkManager"
)

// ManagedDevice is a network device that a service manages.
type ManagedDevice struct {
	Name, Master string // Master: the bridge of which it is a port; "": none
	By           string // the service
	File         string // the configuration file, if By is systemd-networkd
	KeepsMaster  bool   // the service leaves the device in its bridge
}

// ManagedDevices returns what systemd-networkd and NetworkManager say of each device, by its number.
func (s *Settings) ManagedDevices() []ManagedDevice {
	names := map[string]string{}
	numbers := s.Optional("/sys/class/net/*/ifindex")
	for _, p := range numbers {
		names[s.Files[p]] = path.Base(path.Dir(p))
	}
	device := func(file, by string) ManagedDevice {
		name := names[path.Base(file)]
		return ManagedDevice{Name: name, By: by, Master: names[s.Files["/sys/class/net/"+name+"/master/ifindex"]]}
	}
	var all []ManagedDevice
	states, devices := s.Optional("/run/systemd/netif/links/*"), s.Optional("/run/NetworkManager/devices/*")
	for _, p := range states {
		state, d := assignments(s.Files[p]), device(p, networkd)
		if d.File = state["NETWORK_FILE"]; d.File != "" && state["ADMIN_STATE"] != "unmanaged" {
			d.KeepsMaster = s.keepsMaster(d.File)
			all = append(all, d)
		}
	}
	for _, p := range devices {
		if assignments(s.Files[p])["managed"] == "true" {
			all = append(all, device(p, NetworkManager))
		}
	}
	if len(numbers) == 0 && len(states)+len(devices) > 0 {
		s.Lacks("/sys/class/net/*/ifindex")
	}
	return all
}

// keepsMaster reports whether a file of systemd-networkd, with its drop-ins, leaves a device in its bridge.
func (s *Settings) keepsMaster(file string) bool {
	keeps := false
	for _, p := range append([]string{file}, s.Optional("/*/systemd/network/"+path.Base(file)+".d/*.conf")...) {
		if v, is := assignments(s.Files[p])["KeepMaster"]; is {
			keeps = slices.Contains([]string{"1", "yes", "y", "true", "t", "on"}, strings.ToLower(v))
		}
	}
	return keeps
}

// assignments returns the lines KEY=VALUE of a file. If a key is repeated the last line counts.
func assignments(text string) map[string]string {
	all := map[string]string{}
	for line := range strings.Lines(text) {
		if key, value, is := strings.Cut(strings.TrimSpace(line), "="); is {
			all[strings.TrimSpace(key)] = strings.TrimSpace(value)
		}
	}
	return all
}
