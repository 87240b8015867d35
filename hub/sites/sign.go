package sites

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"isolane.dev/isolane/hub/api"
)

// Certificates is how long a host's certificate is valid by default. Grace is for how long after that the
// host may get another one for the same key, with a certificate that serves nothing else.
const (
	Certificates = 7 * 24 * time.Hour
	Grace        = 90 * 24 * time.Hour
)

// backdated is how far before now a renewal certificate becomes valid. If the hub's clock was ahead when it
// signed, and is right again, that must not lock hosts out.
const backdated = 10 * 365 * 24 * time.Hour

// Signer signs the certificates of hosts.
type Signer struct {
	Core   kubernetes.Interface
	Client dynamic.Interface
	// Sign signs a certificate that is valid from before now until life from now. If it is nil, the cluster
	// signs.
	Sign func(subject pkix.Name, public any, before, life time.Duration) ([]byte, error)
	Life time.Duration // of a host's certificate
	Log  *slog.Logger
}

// Run answers requests until the context ends.
func (s *Signer) Run(ctx context.Context) {
	if s.Life == 0 {
		s.Life = Certificates
	}
	for ctx.Err() == nil {
		if err := s.watch(ctx); err != nil && ctx.Err() == nil {
			s.Log.WarnContext(ctx, "requests for certificates are not seen", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

// keepAnswered is how long an answered request is kept. The API server ends the watch after half an hour to
// an hour, and the next one begins with a look at all requests.
const keepAnswered = time.Hour

// watch answers the requests that exist, and those that come.
func (s *Signer) watch(ctx context.Context) error {
	requests := s.Core.CertificatesV1().CertificateSigningRequests()
	ours := fields.OneTermEqualSelector("spec.signerName", api.Signer).String()
	list, err := requests.List(ctx, metav1.ListOptions{FieldSelector: ours})
	if err != nil {
		return err
	}
	for i := range list.Items {
		if r := &list.Items[i]; time.Since(r.CreationTimestamp.Time) < keepAnswered {
			s.answer(ctx, r)
		} else if err = requests.Delete(ctx, r.Name, metav1.DeleteOptions{}); err != nil {
			s.Log.WarnContext(ctx, "an old request is not removed", "request", r.Name, "error", err)
		}
	}
	w, err := requests.Watch(ctx, metav1.ListOptions{FieldSelector: ours,
		ResourceVersion: list.ResourceVersion})
	if err != nil {
		return err
	}
	defer w.Stop()
	for event := range w.ResultChan() {
		if r, is := event.Object.(*certificatesv1.CertificateSigningRequest); is {
			s.answer(ctx, r)
		}
	}
	return nil
}

// answer signs a request or refuses it, unless that was done before.
func (s *Signer) answer(ctx context.Context, r *certificatesv1.CertificateSigningRequest) {
	r, err := s.Core.CertificatesV1().CertificateSigningRequests().Get(ctx, r.Name, metav1.GetOptions{})
	if err != nil { // the watch may show it as it was before it was signed
		s.Log.WarnContext(ctx, "a request is not read", "error", err)
		return
	}
	if len(r.Status.Certificate) > 0 || r.DeletionTimestamp != nil ||
		decided(r, certificatesv1.CertificateDenied) {
		return
	}
	err = s.admit(ctx, r)
	if refused, is := errors.AsType[*refusal](err); is {
		s.Log.WarnContext(ctx, "a host was refused", "request", r.Name, "reason", refused.Error())
		_, err = s.decide(ctx, r, certificatesv1.CertificateDenied, refused.Error())
	}
	if err != nil {
		s.Log.WarnContext(ctx, "a request is not answered", "request", r.Name, "error", err)
	}
}

// refusal says why a host gets no certificate.
type refusal struct{ reason string }

func (r *refusal) Error() string { return r.reason }

func refuse(format string, args ...any) error { return &refusal{fmt.Sprintf(format, args...)} }

// admit admits a host and signs its certificate. Each step may be repeated, so a hub that was killed in
// between can go on from there.
func (s *Signer) admit(ctx context.Context, r *certificatesv1.CertificateSigningRequest) error {
	request, name, err := parse(r)
	if err != nil {
		return err
	}
	key, subject, life := keyDigest(request), pkix.Name{CommonName: request.Subject.CommonName,
		Organization: []string{api.Hosts}}, s.Life
	before := min(time.Hour, life/3) // clocks differ
	token, joins := strings.CutPrefix(r.Spec.Username, "system:bootstrap:")
	if renewer := subject.CommonName == api.Renewer(name); renewer {
		subject.Organization, life = []string{api.Renewing}, s.Life+Grace
		before, joins = backdated, false
	}
	switch {
	case joins:
		err = s.join(ctx, r, token, name, key)
	case r.Spec.Username == api.User(name), r.Spec.Username == api.Renewer(name):
		err = s.renew(ctx, name, key)
	default:
		err = refuse("%s may not have the certificate of host %s", r.Spec.Username, name)
	}
	if err != nil {
		return err
	}
	var cert []byte
	if s.Sign == nil {
		cert, err = s.ask(ctx, r, request, subject, life)
	} else {
		cert, err = s.Sign(subject, request.PublicKey, before, life)
	}
	if err != nil {
		return err
	}
	if r, err = s.decide(ctx, r, certificatesv1.CertificateApproved, "host "+name); err != nil {
		return err
	}
	r.Status.Certificate = cert
	_, err = s.Core.CertificatesV1().CertificateSigningRequests().UpdateStatus(ctx, r, metav1.UpdateOptions{})
	if err == nil && joins {
		err = forget(ctx, s.Core, token)
	}
	return err
}

// parse reads a request: for a host's certificate, or for its renewal certificate.
func parse(r *certificatesv1.CertificateSigningRequest) (*x509.CertificateRequest, string, error) {
	block, _ := pem.Decode(r.Spec.Request)
	if block == nil {
		return nil, "", refuse("expected a request as PEM")
	}
	request, err := x509.ParseCertificateRequest(block.Bytes)
	if err == nil {
		err = request.CheckSignature()
	}
	if err != nil {
		return nil, "", refuse("expected a request that is signed by its key: %v", err)
	}
	name, is := strings.CutPrefix(request.Subject.CommonName, api.User(""))
	if renewed, renews := strings.CutPrefix(request.Subject.CommonName, api.Renewer("")); renews {
		name, is = renewed, true
	}
	if wrong := validation.IsDNS1123Label(api.Namespace(name)); !is || len(wrong) > 0 {
		return nil, "", refuse("expected --name with at most 58 of a-z, 0-9 and -, asked for as %sNAME, found %q",
			api.User(""), request.Subject.CommonName)
	}
	return request, name, nil
}

func keyDigest(request *x509.CertificateRequest) string {
	sum := sha256.Sum256(request.RawSubjectPublicKeyInfo)
	return hex.EncodeToString(sum[:])
}

// join creates what a new host has at the hub, for the one request that uses its token up.
func (s *Signer) join(ctx context.Context, r *certificatesv1.CertificateSigningRequest,
	token, name, key string) error {
	site := ""
	for _, group := range r.Spec.Groups {
		if of, is := strings.CutPrefix(group, api.Joining+":"); is {
			site = of
		}
	}
	if site == "" {
		return refuse("the token is of no site: expected one of isolane-hub token")
	}
	known, err := s.host(ctx, name)
	if err == nil && known.Annotations[api.KeyOf] != key {
		return refuse("there is a host %s already, with another key: expected another --name, or that somebody "+
			"deletes namespace %s first", name, api.Namespace(name))
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	mine, err := useUp(ctx, s.Core, token, string(r.UID))
	switch {
	case apierrors.IsNotFound(err) || err == nil && !mine:
		return refuse("the token was used already: expected a new one, by isolane-hub token %s", site)
	case err != nil:
		return err
	}
	return s.Make(ctx, name, site, key)
}

// Make creates the namespace of a host, its Host object, and its rights.
func (s *Signer) Make(ctx context.Context, name, site, key string) error {
	space := api.Namespace(name)
	_, err := s.Core.CoreV1().Namespaces().Create(ctx,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: space}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	u, err := api.To(map[string]any{"apiVersion": api.Group + "/" + api.Version, "kind": "Host",
		"metadata": map[string]any{"name": name, "annotations": map[string]any{api.KeyOf: key}},
		"spec":     map[string]any{"site": site}})
	if err != nil {
		return err
	}
	_, err = s.Client.Resource(api.Resource("hosts")).Namespace(space).Create(ctx, u, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	return grant(ctx, s.Core, name) // after the Host, without which a host must have no rights
}

// renew checks that a host still exists, and still has the key with which it joined.
func (s *Signer) renew(ctx context.Context, name, key string) error {
	h, err := s.host(ctx, name)
	switch {
	case apierrors.IsNotFound(err):
		return refuse("host %s is no more: expected it to join again", name)
	case err == nil && h.Annotations[api.KeyOf] != key:
		return refuse("host %s has another key: expected it to join again", name)
	}
	return err
}

func (s *Signer) host(ctx context.Context, name string) (api.Host, error) {
	hosts := s.Client.Resource(api.Resource("hosts")).Namespace(api.Namespace(name))
	u, err := hosts.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return api.Host{}, err
	}
	return api.From[api.Host](u)
}

// decide records whether a request is approved or denied.
func (s *Signer) decide(ctx context.Context, r *certificatesv1.CertificateSigningRequest,
	what certificatesv1.RequestConditionType, why string) (*certificatesv1.CertificateSigningRequest, error) {
	if decided(r, what) {
		return r, nil
	}
	r = r.DeepCopy()
	r.Status.Conditions = append(r.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: what, Status: corev1.ConditionTrue, Reason: "IsolaneHub", Message: why})
	requests := s.Core.CertificatesV1().CertificateSigningRequests()
	return requests.UpdateApproval(ctx, r.Name, r, metav1.UpdateOptions{})
}

// decided reports whether a request was decided this way.
func decided(r *certificatesv1.CertificateSigningRequest, what certificatesv1.RequestConditionType) bool {
	return slices.ContainsFunc(r.Status.Conditions,
		func(c certificatesv1.CertificateSigningRequestCondition) bool { return c.Type == what })
}
