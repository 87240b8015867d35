package plan

import (
	"fmt"
	"io"
	"os"
	"strings"

	"sigs.k8s.io/yaml"
)

// ReadFile reads a placement from a file, as Read does.
func ReadFile(name string) (Placement, error) {
	f, err := os.Open(name)
	if err != nil {
		return Placement{}, err
	}
	defer f.Close()
	return Read(name, f)
}

// Read reads a placement as `isolane plan -o json` prints it. name is the file's, for errors. Unknown and
// duplicate fields are errors, and so is what no machine could hold.
func Read(name string, r io.Reader) (Placement, error) {
	const most = 16 << 20
	data, err := io.ReadAll(io.LimitReader(r, most+1))
	var p Placement
	switch {
	case err != nil:
		return p, fmt.Errorf("%s: %w", name, err)
	case len(data) > most:
		return p, fmt.Errorf("%s: longer than %d bytes", name, most)
	}
	var head struct{ Kind string }
	if yaml.Unmarshal(data, &head) == nil && head.Kind == KindOfRefusal {
		return p, fmt.Errorf("%s: expected a placement, found the refusal of one: change the lanes as it says, "+
			"and plan again", name)
	}
	if err := yaml.UnmarshalStrict(data, &p); err != nil {
		text := strings.ReplaceAll(err.Error(), "\n", "; ")
		for _, preamble := range []string{"error unmarshaling JSON: ", "while decoding JSON: ",
			"error converting YAML to JSON: ", "json: "} {
			text = strings.TrimPrefix(text, preamble)
		}
		return p, fmt.Errorf("%s: %s", name, text)
	}
	if p.APIVersion != APIVersion || p.Kind != Kind {
		return p, fmt.Errorf("%s: apiVersion, kind: expected %s %s, found %q %q",
			name, APIVersion, Kind, p.APIVersion, p.Kind)
	}
	if err := p.Validate(); err != nil {
		return p, fmt.Errorf("%s: %w", name, err)
	}
	return p, nil
}

// Validate returns an error that names the first field with lanes that no machine could hold.
func (p Placement) Validate() error {
	for i, l := range p.Lanes {
		if err := l.validate(); err != nil {
			return fmt.Errorf("lanes[%d]: %w", i, err)
		}
		if _, twice := Find(p.Lanes[:i], l.Name); twice {
			return fmt.Errorf("lanes[%d].name: %q is the name of a lane above already", i, l.Name)
		}
	}
	return nil
}

func (l Lane) validate() error {
	if err := l.Declaration().Validate(); err != nil {
		return err
	}
	switch {
	case l.CPUs.Len() != l.Spec.CPUs.Count:
		return fmt.Errorf("cpus: %q: expected %d CPUs, as spec.cpus.count says", l.CPUs, l.Spec.CPUs.Count)
	case l.CPUs.Intersects(l.Idle):
		return fmt.Errorf("idle: %s are among its cpus", l.CPUs.Intersection(l.Idle))
	}
	for _, h := range l.Hugepages {
		if h.PageBytes == 0 || h.Reserve > h.Pages {
			return fmt.Errorf("hugepages: expected no more to reserve than pages, found %d of %d pages of %d bytes",
				h.Reserve, h.Pages, h.PageBytes)
		}
	}
	for role, cpus := range l.Roles {
		if !cpus.IsSubsetOf(l.CPUs) {
			return fmt.Errorf("roles.%s: CPUs %s are not the lane's", role, cpus)
		}
	}
	for _, d := range l.Devices {
		if len(d.VFs) > 4096 {
			return fmt.Errorf("devices: %s: %d virtual functions", d.Address, len(d.VFs))
		}
	}
	return nil
}
