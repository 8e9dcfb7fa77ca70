package remote

import (
	"regexp"

	"github.com/weir-rl/weir/internal/check"
)

// Reference is the key of a section that calls a service, and how the service is called.
type Reference struct {
	// URL is the service's address, http or https, without a user and password: passwords would be shown in logs. Or it is the name of a
	// section of services, which has the address with its timeout, retries and token.
	URL string `koanf:"url"`
	// Config is how the service is called: by default as the section that calls it has it, and beside a name as the section of services says,
	// which a run's configuration puts there. Its URL is that section's, "" for an address.
	Config `koanf:"-"`
}

// DefaultReference names no service.
func DefaultReference() Reference { return Reference{Config: DefaultConfig()} }

// serviceName matches the names of sections of services: no address is a name.
var serviceName = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,31}$`)

// Names says whether URL is the name of a section of services.
func (r Reference) Names() bool { return serviceName.MatchString(r.URL) }

// Resolve takes the way of calling from the section of services that URL names, if there is such a section.
func (r *Reference) Resolve(services map[string]*Service) {
	if service := services[r.URL]; service != nil && r.Names() {
		r.Config = service.over(r.Config)
	}
}

// Connection is how the service is called, with its address.
func (r Reference) Connection() Config {
	c := r.Config
	if !r.Names() {
		c.URL = r.URL
	}
	return c
}

// Validate reports every fault. The values of a section of services are that section's.
func (r Reference) Validate() error {
	if r.Names() {
		return check.That(r.Config.URL != "", "url", "%q: no section of services has this name, and it is no address such as http://127.0.0.1:8900/tool", r.URL)
	}
	return r.Connection().Validate()
}
