package results

// BootOf is the environment in which a run was made.
func (s Session) BootOf(r Run) Environment {
	if r.Boot >= 0 && r.Boot < len(s.Boots) {
		return s.Boots[r.Boot]
	}
	return s.Environment
}

// Await are cells that wait for a boot.
type Await struct {
	Cells []string `json:"cells"`
	Boot  string   `json:"boot"` // what to boot, in words
}
