// Package api has what Isolane adds to the Kubernetes API of a hub, as documents and as Go types.
package api

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"isolane.dev/isolane/lane"
)

// Manifests are the kinds of resources, and the rights of hosts that join and that have joined.
//
//go:embed manifests.yaml
var Manifests []byte

// The kinds, and the names by which things find one another.
const (
	Group     = "isolane.dev"
	Version   = "v1alpha1"
	Finalizer = "isolane.dev/host"             // of an Instance that a host has taken over
	Signer    = "isolane.dev/host"             // of the certificates of hosts
	Hosts     = "isolane:hosts"                // the group of hosts that have joined
	Renewing  = "isolane:renewing"             // the group of hosts by what they may only renew with
	URLs      = "isolane.dev/hub"              // annotation of namespace kube-system: all URLs of the hub
	Joining   = "system:bootstrappers:isolane" // before : and a site: of hosts that join
	KeyOf     = "isolane.dev/key"              // annotation of a Host: the digest of its key
	AppOf     = "isolane.dev/app"              // label of an Instance: NAMESPACE.NAME of its App; its finalizer
	TenantOf  = "isolane.dev/tenant"           // label of an Instance: the namespace of its App
)

// What is said of an Instance that is only reserved, InstanceSpec.Reserve: these and no others.
const (
	Reserved = "Reserved" // its lane is in force, for half a minute; status.placement has it
	Refused  = "Refused"  // status.refusal or the message says why; status.placement is what the host has
	Lapsed   = "Lapsed"   // it was not confirmed in time, and the lane was taken back
)

// NotYet is why what has begun on a host is not there yet. It may come up by itself.
type NotYet string

func (n NotYet) Error() string { return string(n) }

// Resource names a kind's resource.
func Resource(name string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: Group, Version: Version, Resource: name}
}

// Namespace is where all of a host is, and nothing else.
func Namespace(host string) string { return "host-" + host }

// User is who a host is for the hub.
func User(host string) string { return "isolane:host:" + host }

// Renewer is who a host is by the certificate with which it may get another one, and nothing else.
func Renewer(host string) string { return "isolane:renew:" + host }

// Host is a machine that has joined.
type Host struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              HostSpec   `json:"spec"`
	Status            HostStatus `json:"status,omitzero"`
}

// HostSpec is what the hub says of a host.
type HostSpec struct {
	Site string `json:"site"`
}

// HostStatus is what a host says of itself.
type HostStatus struct {
	Mark       string             `json:"mark,omitempty"` // by which the host knows the hub again
	CPUs       int                `json:"cpus,omitempty"`
	Free       string             `json:"free,omitempty"`    // a cpulist
	Kernel     string             `json:"kernel,omitempty"`  // its release
	Agent      string             `json:"agent,omitempty"`   // the version of isolane-hub there
	Root       []string           `json:"root,omitempty"`    // tenants whose commands may be root there
	Machine    json.RawMessage    `json:"machine,omitempty"` // as isolane host -o json
	Findings   []Finding          `json:"findings,omitempty"`
	Proofs     []Proof            `json:"proofs,omitempty"`
	Changes    []Change           `json:"changes,omitempty"` // the last ones of isolane history, the newest last
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Finding is what an audit of a host has found, by the rule that says it.
type Finding struct {
	Rule     string `json:"rule"`
	Severity string `json:"severity"`
	Title    string `json:"title"`
	CPUs     string `json:"cpus,omitempty"` // a cpulist; "": the whole machine
}

// Change is what has happened to a host's lanes and settings.
type Change struct {
	At   metav1.Time `json:"at"`
	Kind string      `json:"kind"` // of isolane history: applied, released, drift, put back, proof, boot
	Lane string      `json:"lane,omitempty"`
	What string      `json:"what"`
	By   string      `json:"by,omitempty"` // what did it, where that is known and no command of Isolane
}

// Proof says whether a lane of a host keeps a bound of its objective, by the last measurement beside it.
type Proof struct {
	Lane       string       `json:"lane"`
	Metric     string       `json:"metric"` // rtt or throughput
	Percentile string       `json:"percentile,omitempty"`
	Bound      string       `json:"bound"` // "rtt p99.9 at most 50us"
	Verdict    lane.Verdict `json:"verdict"`
	Reason     string       `json:"reason,omitempty"` // of a verdict other than held
}

// Proved begins the labels that the hub gives its copy of a host by what was proved there: of rtt-p99.9,
// "held" where a lane keeps such a bound and none misses one, "missed" where one does.
const Proved = "proved.isolane.dev/"

// ProvedLabels are these.
func (s HostStatus) ProvedLabels() map[string]string {
	labels := map[string]string{}
	for _, p := range s.Proofs {
		key := Proved + p.Metric
		if p.Percentile != "" {
			key += "-" + p.Percentile
		}
		if p.Verdict == lane.Missed || p.Verdict == lane.Held && labels[key] == "" {
			labels[key] = string(p.Verdict)
		}
	}
	return labels
}

// Instance is what runs on one host in a lane.
type Instance struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              InstanceSpec   `json:"spec"`
	Status            InstanceStatus `json:"status,omitzero"`
}

// InstanceSpec is what is to run.
type InstanceSpec struct {
	Lane     json.RawMessage `json:"lane"` // the spec of a lane
	Workload `json:",inline"`
	Tenant   string `json:"tenant,omitempty"` // the namespace whose user it is on the host; "": its own
	Adopts   string `json:"adopts,omitempty"`
	Reserve  bool   `json:"reserve,omitempty"` // only the lane, and not for long: nothing runs yet
}

// Workload is what runs in a lane: a command, a service, or a container with its image's command or another.
type Workload struct {
	Command []string `json:"command,omitempty"` // a program and its arguments, of the host or of the image
	Service string   `json:"service,omitempty"` // a unit of systemd that the host has, "router.service"
	Image   string   `json:"image,omitempty"`   // of a container, which Podman has on the host already
	Root    bool     `json:"root,omitempty"`    // it is to be root there; a service is, whatever user it has
}

// InstanceStatus is what the host says of it.
type InstanceStatus struct {
	Phase      string          `json:"phase,omitempty"` // Starting, Running, Failed, Waiting, Ending
	CPUs       string          `json:"cpus,omitempty"`  // a cpulist
	Message    string          `json:"message,omitempty"`
	Brief      string          `json:"brief,omitempty"` // what of the message the App's tenant may read
	Generation int64           `json:"observedGeneration,omitempty"`
	Placement  json.RawMessage `json:"placement,omitempty"` // of all lanes of the host: the answer to Reserve
	Refusal    json.RawMessage `json:"refusal,omitempty"`
}

// App is what runs in a lane on as many hosts as it says. Its namespace is its tenant's.
type App struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              AppSpec   `json:"spec"`
	Status            AppStatus `json:"status,omitzero"`
}

// AppSpec is what is to run, and where.
type AppSpec struct {
	Lane     json.RawMessage `json:"lane"` // the spec of a lane; lanes that it names are of its namespace
	Workload `json:",inline"`
	Where    Where `json:"where,omitzero"`
	Replicas int   `json:"replicas"` // each on another host
}

// Where says which hosts may be chosen. What is empty leaves all.
type Where struct {
	Sites  []string          `json:"sites,omitempty"`  // one of these
	Zones  []string          `json:"zones,omitempty"`  // its site is in one of these
	Hosts  []string          `json:"hosts,omitempty"`  // one of these
	Labels map[string]string `json:"labels,omitempty"` // of the Host: all of these
}

// AppStatus is what became of an App. Its tenant reads it: it names nobody else's lanes.
type AppStatus struct {
	Phase      string   `json:"phase,omitempty"` // Running, Starting, Pending, Refused or Ending
	Running    int      `json:"running"`         // of the replicas
	Hosts      []string `json:"hosts,omitempty"`
	Message    string   `json:"message,omitempty"`
	Generation int64    `json:"observedGeneration,omitempty"`

	Conditions []metav1.Condition `json:"conditions,omitempty"` // Ready: the phase, for programs that wait
}

// Tenant limits what the Apps of the namespace of its name have together.
type Tenant struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              TenantSpec `json:"spec"`
}

// TenantSpec has nil where there is no limit.
type TenantSpec struct {
	CPUs      *int     `json:"cpus,omitempty"`      // of their lanes, as declared
	Memory    string   `json:"memory,omitempty"`    // "64Gi"; "": no limit
	Hugepages string   `json:"hugepages,omitempty"` // of all sizes together
	Functions *int     `json:"functions,omitempty"` // virtual functions that lanes ask for
	Instances *int     `json:"instances,omitempty"`
	Sites     []string `json:"sites,omitempty"` // none: all
}

// Quota is what a tenant reads of its Tenant, and what its Apps have, in its own namespace.
type Quota struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              TenantSpec  `json:"spec"`
	Status            QuotaStatus `json:"status,omitzero"`
}

// QuotaStatus is what a hub says of a Quota.
type QuotaStatus struct {
	Used Used `json:"used"`
}

// Used is what counts against the fields of a TenantSpec.
type Used struct {
	CPUs      int    `json:"cpus"`
	Memory    string `json:"memory"`
	Hugepages string `json:"hugepages"`
	Functions int    `json:"functions"`
	Instances int    `json:"instances"`
}

// Lane is the lane of an Instance of that name.
func Lane(name string, spec json.RawMessage) (lane.Lane, error) {
	declared, err := json.Marshal(map[string]any{"apiVersion": lane.APIVersion, "kind": lane.Kind,
		"metadata": map[string]any{"name": name}, "spec": spec})
	if err != nil {
		return lane.Lane{}, err
	}
	want, err := lane.Parse("spec.lane", bytes.NewReader(declared))
	if f, is := errors.AsType[*lane.FieldError](err); is && strings.HasPrefix(f.Field, "spec.") {
		err = &lane.FieldError{Field: "spec.lane" + strings.TrimPrefix(f.Field, "spec"), Text: f.Text}
	}
	if err != nil {
		return lane.Lane{}, err
	}
	return want[0], nil
}

// From reads one of these types from what the dynamic client returns.
func From[T any](u *unstructured.Unstructured) (T, error) {
	var t T
	data, err := u.MarshalJSON()
	if err == nil {
		err = json.Unmarshal(data, &t)
	}
	if err != nil {
		err = fmt.Errorf("%s %s: %w", u.GetKind(), u.GetName(), err)
	}
	return t, err
}

// To is the way back.
func To(object any) (*unstructured.Unstructured, error) {
	data, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	var content map[string]any
	if err = json.Unmarshal(data, &content); err != nil {
		return nil, err
	}
	return &unstructured.Unstructured{Object: runtime.DeepCopyJSON(normal(content).(map[string]any))}, nil
}

// normal makes whole numbers what the client expects.
func normal(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for key := range v {
			v[key] = normal(v[key])
		}
	case []any:
		for i := range v {
			v[i] = normal(v[i])
		}
	case float64:
		if v == float64(int64(v)) {
			return int64(v)
		}
	}
	return value
}
